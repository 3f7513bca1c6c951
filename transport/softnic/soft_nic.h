// SoftNic: an RDMA NIC as a pure state machine. Each connection has a wire mode: extended mode, in
// which every packet carries the remote address of its payload, so that packets may take any path
// and arrive in any order; or standard RC over RoCE v2, for peers of any kind.
// Towards the message layer it is a Nic. Below, an engine connects it to a packet I/O and drives it
// with packets and time: on_packets, on_time, poll_transmit, next_deadline. It has no I/O, clock or
// thread, and allocates nothing once its queue pairs are created.
// It keeps the slots of queue pairs, memory, timers and completions. A QueuePairEnd implements the
// mode of a queue pair: extended/, rc/, datagram/. Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "transport/nic/standard_nic.h"
#include "transport/softnic/extended/extended_receiver.h"
#include "transport/softnic/nic_core.h"
#include "transport/softnic/rc/rc_receiver.h"

namespace pacecar {

class SoftNic final : public StandardNic {
 public:
  SoftNic(const SoftNicConfig& config, RandomSource random, Instant now);
  ~SoftNic() override;

  // --- the side of the packet I/O ---
  void on_packets(Instant now, std::span<const RxPacket> packets) {
    extended_receiver_.on_packets(now, packets);
  }
  // Fills in packets to send and returns how many. They are valid until the next call, as long as
  // invalidations() does not change: hand all of them to the packet I/O before the next call.
  size_t poll_transmit(Instant now, std::span<TxPacket> packets);
  void on_time(Instant now);  // Runs the timers that are due.
  // When poll_transmit() or on_time() must be called even if nothing arrives.
  Instant next_deadline() const;
  // Changes when packets of the last poll_transmit may point to deregistered memory. Packets not
  // yet at the packet I/O must then be dropped: they count as lost, and are retransmitted.
  uint64_t invalidations() const { return core_.invalidations; }
  // Ends all connections of standard RC as a refusal does, for tests.
  void fail_rc_connections(Instant now);

  // --- for NICs that act as one: each has every region, and an end of every queue pair ---
  // Registers memory with another's key and address; deregister_memory as usual.
  void adopt_memory(const MemoryRegion& region, Access access) {
    core_.memory.adopt(region, access);
  }
  // The queue pair's slot: 0 .. caps().queue_pairs-1.
  uint32_t slot_of(QueuePairId id) const { return core_.slot_of(id); }

  // --- Nic ---
  const NicCaps& caps() const override { return caps_; }
  const NicCounters& counters() const override { return core_.counters; }
  Result<MemoryRegion> register_memory(void* address, size_t length, Access access) override {
    return core_.memory.add(address, length, access);
  }
  std::shared_ptr<void> deregister_memory(const MemoryRegion& region) override;
  // The packet I/O has refused packets; what reads memory at `unreadable`, if not null, fails.
  void on_refused(uint64_t packets, const uint8_t* unreadable);
  Result<QueuePairId> create_queue_pair(const QueuePairConfig& config) override;
  QueuePairAddress queue_pair_address(QueuePairId id) const override;
  Result<void> connect_queue_pair(QueuePairId id, std::span<const uint8_t> remote) override;
  std::string peer(QueuePairId id) const override;
  QueuePairMemory queue_pair_memory(const QueuePairConfig& config) const override;
  Duration silence(QueuePairId id, Instant now) const override;
  std::string fault(QueuePairId id) const override;
  void halt_queue_pair(QueuePairId id) override;
  void destroy_queue_pair(QueuePairId id) override;
  size_t post(QueuePairId id, std::span<const WorkRequest> work_requests) override;
  size_t poll(std::span<Completion> completions) override;
  size_t poll_signals(std::span<FlowSignal> signals) override {
    return core_.scheduler.flows().poll_signals(signals);
  }
  void report_arrivals(bool wanted) override { core_.scheduler.flows().report_arrivals(wanted); }
  size_t poll_arrivals(std::span<FlowArrival> arrivals) override {
    return core_.scheduler.flows().poll_arrivals(arrivals);
  }
  void set_flow_limits(FlowId flow, const FlowLimits& limits, Instant now) override {
    core_.scheduler.set_limits(flow, limits, now);
  }

  // --- StandardNic ---
  Result<MemoryRegion> register_memory_as(void* address, size_t length, Access access,
                                          uint64_t remote, DomainId domain) override {
    return core_.memory.add_as(address, length, access, remote, domain);
  }
  size_t post_receives(QueuePairId id, std::span<const ReceiveRequest> requests) override;
  Result<ReceiveQueueId> create_receive_queue(uint32_t receives) override;
  void destroy_receive_queue(ReceiveQueueId id) override { receive_queues_[id].reset(); }
  size_t post_shared_receives(ReceiveQueueId id,
                              std::span<const ReceiveRequest> requests) override {
    return push_receives(*receive_queues_[id], requests);
  }
  Result<void> connect_standard(QueuePairId id, const StandardPeer& peer) override;
  void start_sending(QueuePairId id, const StandardSending& sending) override;
  void open_datagrams(QueuePairId id, uint32_t queue_key) override;
  void set_rights(QueuePairId id, const StandardRights& rights) override {
    get(id).end->set_rights(rights);
  }
  StandardRest take_back(QueuePairId id) override {
    QueuePairEnd* const end = get(id).end.get();
    return end == nullptr ? StandardRest() : end->take_back();
  }
  size_t post_datagrams(QueuePairId id, std::span<const Datagram> datagrams) override;
  Result<void> bind_window(const MemoryWindow& window) override {
    return core_.memory.bind(window);
  }
  void unbind_window(uint32_t key) override { core_.memory.remove(key); }
  void reset_queue_pair(QueuePairId id) override;
  void break_queue_pair(QueuePairId id) override;

 private:
  using ReceiveQueue = FixedQueue<ReceiveRequest>;

  QueuePair& get(QueuePairId id) const;
  void revoke(const GoneMemory& gone);
  // Receive requests exist in standard RC only.
  bool offers_extended(const QueuePairConfig& config) const {
    return core_.config.wire_mode == WireMode::kExtended ||
           (core_.config.wire_mode == WireMode::kAuto && config.receives == 0);
  }
  size_t push_receives(ReceiveQueue& queue, std::span<const ReceiveRequest> requests) const;
  size_t transmit_answers(Instant deadline, Instant now, std::span<TxPacket> out);
  size_t transmit_flows(Instant now, std::span<TxPacket> out);

  NicCore core_;
  NicCaps caps_;
  RocePackets roce_packets_;
  RcShared rc_;
  DatagramShared datagrams_;
  RcReceiver rc_receiver_;
  ExtendedShared extended_;
  ExtendedReceiver extended_receiver_;
  std::vector<std::unique_ptr<ReceiveQueue>> receive_queues_;
  std::vector<uint32_t> free_slots_;  // used since, and free again
  uint32_t first_unused_slot_ = 0;
};

}  // namespace pacecar
