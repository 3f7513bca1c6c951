// SoftNic: an RDMA NIC as a pure state machine. Each connection has a wire mode: extended mode, in
// which every packet carries the remote address of its payload, so that packets may take any path
// and arrive in any order; or standard RC over RoCE v2, for peers of any kind.
//
// Towards the message layer it is a Nic. Below, an engine connects it to a packet I/O and drives it
// with packets and time: on_packets, on_time, poll_transmit, next_deadline. It has no I/O, clock or
// thread, and allocates nothing once its queue pairs are created.
//
// Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/base/fixed_queue.h"
#include "transport/base/fresh_pages.h"
#include "transport/base/timer_wheel.h"
#include "transport/base/work_list.h"
#include "transport/nic/nic_flows.h"
#include "transport/nic/standard_nic.h"
#include "transport/softnic/config.h"
#include "transport/softnic/memory_table.h"
#include "transport/softnic/queue_pair.h"
#include "transport/softnic/random_source.h"
#include "transport/softnic/slab.h"
#include "transport/softnic/write_follower.h"
#include "transport/wire/icrc.h"

namespace pacecar {

class SoftNic final : public StandardNic {
 public:
  SoftNic(const SoftNicConfig& config, RandomSource random, Instant now);
  ~SoftNic() override;

  // --- the side of the packet I/O ---
  void on_packets(Instant now, std::span<const RxPacket> packets);
  // For PacketIo::predict: the probable place of the next packets' payload.
  Placement predict(Instant now);
  // Fills in packets to send and returns how many. They are valid until the next call, as long as
  // invalidations() does not change: hand all of them to the packet I/O before the next call.
  size_t poll_transmit(Instant now, std::span<TxPacket> packets);
  // Changes when packets of the last poll_transmit may point to deregistered memory. Packets that
  // the packet I/O does not have yet must then be dropped: they count as lost, and are
  // retransmitted.
  uint64_t invalidations() const { return invalidations_; }
  // Ends all connections of standard RC as a refusal does, for tests.
  void upset_lanes(Instant now);

  // --- for NICs that act as one: each has every region, and an end of every queue pair ---
  // Registers memory with another's key and address; deregister_memory as usual.
  void adopt_memory(const MemoryRegion& region, Access access) { memory_.adopt(region, access); }
  // The queue pair's slot: 0 .. caps().queue_pairs-1.
  uint32_t slot_of(QueuePairId id) const {
    return id & static_cast<uint32_t>(queue_pairs_.size() - 1);
  }

  // --- Nic ---
  const NicCaps& caps() const override { return caps_; }
  const NicCounters& counters() const override { return counters_; }
  Result<MemoryRegion> register_memory(void* address, size_t length, Access access) override {
    return memory_.add(address, length, access);
  }
  void deregister_memory(const MemoryRegion& region) override;
  Result<QueuePairId> create_queue_pair(const QueuePairConfig& config) override;
  QueuePairAddress queue_pair_address(QueuePairId id) const override;
  Result<void> connect_queue_pair(QueuePairId id, std::span<const uint8_t> remote) override;
  std::string peer(QueuePairId id) const override;
  QueuePairMemory queue_pair_memory(const QueuePairConfig& config) const override;
  std::string fault(QueuePairId id) const override;
  void halt_queue_pair(QueuePairId id) override;
  void destroy_queue_pair(QueuePairId id) override;
  size_t post(QueuePairId id, std::span<const WorkRequest> work_requests) override;
  size_t post_receives(QueuePairId id, std::span<const ReceiveRequest> requests) override;
  size_t poll(std::span<Completion> completions) override;
  size_t poll_signals(std::span<FlowSignal> signals) override {
    return flows_.poll_signals(signals);
  }
  void report_arrivals(bool wanted) override { flows_.report_arrivals(wanted); }
  size_t poll_arrivals(std::span<FlowArrival> arrivals) override {
    return flows_.poll_arrivals(arrivals);
  }
  void set_flow_limits(FlowId flow, const FlowLimits& limits, Instant now) override;
  void on_time(Instant now) override;
  Instant next_deadline() const override;

  // --- StandardNic ---
  Result<MemoryRegion> register_memory_as(void* address, size_t length, Access access,
                                          uint64_t remote, DomainId domain) override {
    return memory_.add_as(address, length, access, remote, domain);
  }
  Result<ReceiveQueueId> create_receive_queue(uint32_t receives) override;
  void destroy_receive_queue(ReceiveQueueId id) override { receive_queues_[id].reset(); }
  size_t post_shared_receives(ReceiveQueueId id,
                              std::span<const ReceiveRequest> requests) override {
    return take_receives(*receive_queues_[id], requests);
  }
  Result<void> connect_standard(QueuePairId id, const StandardPeer& peer) override;
  void start_sending(QueuePairId id, const StandardSending& sending) override;
  void open_datagrams(QueuePairId id, uint32_t queue_key, uint32_t first_psn) override;
  size_t post_datagrams(QueuePairId id, std::span<const Datagram> datagrams) override;
  Result<void> bind_window(const MemoryWindow& window) override { return memory_.bind(window); }
  void unbind_window(uint32_t key) override { memory_.remove(key); }
  void reset_queue_pair(QueuePairId id) override;
  void break_queue_pair(QueuePairId id) override;

 private:
  struct AddressHash {
    size_t operator()(const Address& address) const {
      const std::string_view ip(reinterpret_cast<const char*>(address.ip.data()),
                                address.ip.size());
      return std::hash<std::string_view>()(ip) ^ address.port;
    }
  };
  struct Flow : NicFlow {  // of its queue pairs, the paced ones
    using NicFlow::NicFlow;
    bool sparse = false;   // so slow that each packet requests an acknowledgement
    bool waiting = false;  // only for the pacer: any lateness is the host's
    Duration repaid;       // lateness of the host that is caught up gradually
  };

  QueuePair* find(QueuePairId id) const;
  // By the number in packets.
  QueuePair* find_end(uint32_t number);
  QueuePair* find_sender(const RxPacket& packet, uint32_t queue_pair);
  QueuePair* find_datagram_end(uint32_t number);
  uint32_t general_services() const {
    return roce::general_services_of(config_.port_slot.value_or(0));
  }

  bool speaks_standard() const { return config_.wire_mode != WireMode::kExtended; }
  // Receive requests exist in standard RC only.
  bool offers_extended(const QueuePairConfig& config) const {
    return config_.wire_mode == WireMode::kExtended ||
           (config_.wire_mode == WireMode::kAuto && config.receives == 0);
  }
  uint32_t next_number(uint32_t slot);
  Result<void> connect_extended(QueuePair& qp, const SoftEndpoint& remote);
  // Null without security. Errors: kPeer.
  Result<std::unique_ptr<PacketGuard>> make_guard(const QueuePair& qp);
  std::optional<Secret> agree(const KeyExchange::PublicKey& peer);
  uint32_t replay_window() const { return config_.window_packets * 2; }
  Result<void> connect_standard(QueuePair& qp, const PeerEndpoint& peer);
  void open_lane(QueuePair& qp, const RcEndpoint& peer, const RcLane& end);
  // To qp.remote; of `peer` its limits and rights. `read_depth`: our outstanding reads and atomics.
  void open_connection(QueuePair& qp, const StandardPeer& peer, uint8_t read_depth);
  void on_handed_over(QueuePair& qp);
  bool reaches(const std::array<uint8_t, 16>& gid) const;
  uint16_t peer_port(uint32_t queue_pair) const;
  size_t take_receives(FixedQueue<ReceiveRequest>& queue,
                       std::span<const ReceiveRequest> requests) const;
  void detach(QueuePair& qp);
  void join_siblings(QueuePair& qp);
  void leave_siblings(const QueuePair& qp);
  [[gnu::noinline]] static Completion breaking_of(const QueuePair& qp);
  [[gnu::noinline]] void ask_siblings(QueuePair& qp);

  [[gnu::noinline]] void take_apart(Instant now, const RxPacket& datagram);
  // Without its trailer.
  std::span<const uint8_t> body_of(std::span<const uint8_t> packet) const {
    return packet.first(packet.size() < trailer_bytes_ ? 0 : packet.size() - trailer_bytes_);
  }
  // Whether a packet is from the peer, intact and new. If not, it is counted as dropped. If
  // payloads are encrypted, their plaintext is placed in opened_.
  bool vouches(QueuePair& qp, std::span<const uint8_t> packet, size_t header_bytes,
               std::span<const uint8_t> placed = {}) {
    if (qp.guard != nullptr) return opens(*qp.guard, packet, header_bytes, placed);
    if (placed.empty() ? wire::verify_checksum(packet, header_bytes, qp.coverage)
                       : wire::verify_checksum(packet, placed, qp.coverage)) {
      return true;
    }
    ++counters_.bad_checksum;
    return false;
  }
  [[gnu::noinline]] bool opens(PacketGuard& guard, std::span<const uint8_t> packet,
                               size_t header_bytes, std::span<const uint8_t> placed);
  bool as_predicted(std::span<const RxPacket> packets) const;
  [[gnu::noinline]] void put_together(std::span<const RxPacket> packets);
  // Returns the queue pair if others of the same write may follow.
  QueuePair* on_data(Instant now, const RxPacket& packet);
  template <bool kPlaced>
  size_t on_alike(Instant now, QueuePair& qp, const RxPacket& first,
                  std::span<const RxPacket> packets);
  // Processes a packet that vouches() has accepted.
  QueuePair* take_data(QueuePair& qp, Instant now, const Responder::Data& data);
  bool count_placed(QueuePair& qp, Instant now, const Responder::Data& data);
  bool late_for(const QueuePair& qp, const Responder::Data& data) const;
  void on_trimmed(Instant now, const RxPacket& packet);
  void on_ack(Instant now, const RxPacket& packet);
  void on_nak(Instant now, const RxPacket& packet);
  // Packets of standard RC, and malformed packets.
  void on_standard(Instant now, const RxPacket& packet);
  bool right_icrc(const RxPacket& packet);
  void on_datagram(const RxPacket& packet, const roce::Packet& datagram);
  void complete_datagrams(QueuePair& qp);
  size_t transmit_datagrams(QueuePair& qp, std::span<TxPacket> out);
  void on_answer(QueuePair& qp, const roce::Packet& packet, Instant arrival, Instant now);
  void on_request(QueuePair& qp, const roce::Packet& packet, Instant now);
  void notify_congestion(QueuePair& qp, Instant now);
  void check_failure(QueuePair& qp, Instant now);

  // Recovery of failed connections of standard RC: soft_nic_lanes.cc.
  bool is_standby(const QueuePair& qp) const { return qp.messages != nullptr; }
  QueuePair* standby_of(const QueuePair& qp) const;
  QueuePair& owner_of(const QueuePair& standby) const;
  void make_standby(const QueuePair& qp, const PeerEndpoint& peer);
  void drop_standby(const QueuePair& qp);
  static bool is_futile(RcConnection& rc);
  // Breaks the queue pair if its connection cannot come back.
  void fail_lane(QueuePair& qp, CompletionStatus status, Instant now);
  void advance_lane(QueuePair& qp, Instant now);
  bool take_step(QueuePair& qp, LaneRecovery::Step step, Instant now);
  bool replace_lane(QueuePair& qp);
  bool join_lane(QueuePair& qp);
  void use_lane(QueuePair& qp, Instant now);
  void on_lane_timeout(QueuePair& qp, Instant now);
  bool send_to_peer(QueuePair& qp, RecoveryMessage::Kind kind);
  void on_standby_message(QueuePair& standby, const Completion& completion, Instant now);
  void on_standby_sent(QueuePair& standby, Instant now);
  bool ack_at_once(QueuePair& qp, const wire::DataHeader& header) const;
  void note_arrival(FlowId flow, const Responder::Data& data);
  void refuse(const QueuePair& qp, const wire::DataHeader& header, wire::Syndrome syndrome);
  void break_queue_pair(QueuePair& qp, CompletionStatus status, const char* fault = nullptr);

  // Adds a queue pair with something to send to the list of poll_transmit.
  void wake(QueuePair& qp);
  // Standard RC: the next packet would read, and the read window is full.
  bool waits_to_read(const QueuePair& qp) const;
  void wake_readers();
  void make_ready(uint32_t flow) {
    if (!flows_[flow].gate.on_credit() || can_send_on_credit(flows_[flow]))
      flows_.ready().add(flow);
  }
  bool has_work(const Flow& flow) const;
  bool can_send_on_credit(const Flow& flow) const;
  uint32_t slot_of(const QueuePair& qp) const;
  // Packets that the peer may send beyond the cumulative one; that we may; work requests.
  uint32_t window(const QueuePairConfig& config) const;
  uint32_t send_window(const QueuePairConfig& config) const;
  static uint32_t work_requests(const QueuePairConfig& config);
  static Bytes standard_state(const QueuePairConfig& config);
  PathPolicy path_policy(const QueuePairConfig& config) const;
  // Small packets count by number, larger ones by bytes, because a burst of full packets arrives as
  // one.
  bool much_unacknowledged(const QueuePair& qp) const {
    const bool many = qp.unacknowledged_packets >= config_.ack.small_packets &&
                      qp.unacknowledged_bytes < config_.burst_bytes;
    return many || qp.unacknowledged_bytes >= config_.ack.bytes;
  }
  void want_ack(QueuePair& qp, Instant now, bool at_once);
  void arm_timeout(const QueuePair& qp);
  void on_queue_pair_timeout(QueuePair& qp, Instant now);

  // Writes a packet's trailer; returns the payload to send, which is encrypted if required.
  static std::span<const uint8_t> finish(QueuePair& qp, std::span<const uint8_t> header,
                                         std::span<const uint8_t> payload,
                                         std::span<uint8_t> sealed, std::span<uint8_t> trailer) {
    if (qp.guard != nullptr) {
      qp.guard->seal(header, payload, sealed.data(), trailer);
      return qp.guard->enciphers() ? sealed : payload;
    }
    wire::store_checksum(wire::checksum(header, payload, qp.coverage),
                         trailer.first<wire::kChecksumBytes>());
    return payload;
  }
  size_t most_ack_bytes(const QueuePair& qp) const {
    return qp.responder->max_ack_bytes() + trailer_bytes_;
  }
  TxPacket answer(QueuePair& qp, std::span<const uint8_t> bytes) const;
  std::span<const uint8_t> take_ack(QueuePair& qp, Instant now);
  bool worth_joining(uint32_t slot, Instant now, size_t company) const;
  size_t gather(const QueuePair& qp, Instant now, Bytes room, size_t company);
  [[gnu::noinline]] size_t take_word(QueuePair& qp, Instant now, Bytes room);
  [[gnu::noinline]] size_t join(const QueuePair& qp, Instant now, Bytes room, size_t company);
  [[gnu::noinline]] size_t follow(const QueuePair& qp, Instant now, std::span<const TxPacket> burst,
                                  std::span<TxPacket> out);
  size_t transmit_naks(std::span<TxPacket> out);
  size_t transmit_acks(Instant due, Instant now, std::span<TxPacket> out);
  size_t transmit_control(Instant now, std::span<TxPacket> out);
  size_t transmit_flows(Instant now, std::span<TxPacket> packets);
  size_t transmit_flow(uint32_t index, Instant now, std::span<TxPacket> out);
  Bytes room(QueuePair& qp) const;
  Bytes last_from(const QueuePair& qp) const;
  [[gnu::flatten]] size_t transmit_queue_pair(QueuePair& qp, Instant now, Bytes budget,
                                              std::span<TxPacket> out);
  size_t transmit_run(QueuePair& qp, Instant now, Bytes below, uint16_t path,
                      std::span<TxPacket> out);
  // The result of a queue pair's turn.
  struct Sent {
    Bytes in_flight = 0;  // more than before
    Bytes payload = 0;
    Bytes wire = 0;
  };
  void account(QueuePair& qp, Instant now, const Sent& sent);
  size_t transmit_standard(QueuePair& qp, Instant now, Bytes budget, std::span<TxPacket> out);
  size_t transmit_answers(QueuePair& qp, Instant now, std::span<TxPacket> out);
  TxPacket standard_packet(const Address& destination, const roce::Packet& packet, uint16_t path,
                           TrafficClass traffic_class);
  // Brings the flow up to date after its requester has changed.
  void on_progress(QueuePair& qp, Bytes in_flight_before, const SendProgress& progress);

  SoftNicConfig config_;
  RandomSource random_;
  NicCaps caps_;
  NicCounters counters_;
  MemoryTable memory_;
  ReadWindow reads_;
  // By slot, the low bits of the number; the upper half has the standby lanes of the lower half.
  std::vector<std::unique_ptr<QueuePair>> queue_pairs_;
  std::vector<std::unique_ptr<FixedQueue<ReceiveRequest>>> receive_queues_;
  std::optional<QueuePairId> general_services_;
  roce::IdentificationEffects identifications_;
  OwnPages<StandbyMessages::Room> standby_rooms_;  // by slot of their owners
  uint32_t standby_key_ = 0;
  std::vector<uint32_t> free_slots_;                              // used since, and free again
  uint32_t unused_slots_ = 0;                                     // from here on
  std::unordered_map<Address, uint32_t, AddressHash> companies_;  // one of each peer's siblings
  NicFlows<Flow> flows_;
  TimerWheel timers_;  // ids: slots of queue pairs, then flows
  // NAKs to send; those that do not fit are lost, as in the network.
  FixedQueue<std::pair<QueuePairId, wire::Nak>> naks_;
  WorkList acks_;      // slots of queue pairs with an acknowledgement or answer that is due
  WorkList later_;     // slots of queue pairs whose acknowledgement may wait, by deadline
  Instant quiet_at_;   // when all of later_ are due, unless more arrives
  WorkList controls_;  // slots of unpaced queue pairs with work
  WorkList readers_;   // flows that wait for the read window
  WorkList events_;    // slots of queue pairs with completions
  WorkList posted_;    // slots of queue pairs with work requests that may be incomplete
  FixedQueue<Completion> received_;
  Slab slab_;
  const size_t trailer_bytes_;   // of packets of the extended mode
  const size_t overhead_bytes_;  // of data packets: header and trailer
  const bool enciphers_;
  const bool answers_pauses_;                            // AckPolicy::idle is a limit
  const size_t slab_bytes_;                              // of a full data packet, in the slab
  std::optional<KeyExchange> keys_;                      // with security
  std::map<KeyExchange::PublicKey, Secret> agreements_;  // shared secrets with peers; a cache
  std::vector<uint8_t> opened_;                          // plaintext of the newest payload
  const Bytes in_place_bytes_;         // as configured; above any write's length if that is 0
  WriteFollower follower_;             // of those
  WriteFollower::Write predicted_;     // by the newest prediction
  std::vector<RxPacket> together_;     // packets whose payload was received into a wrong place,
  std::vector<uint8_t> in_one_piece_;  // and their bytes
  // The upper bits of the next queue pair's number. So late packets for an earlier queue pair of
  // the same slot do not find the new one.
  uint32_t next_generation_;
  uint64_t invalidations_ = 0;
};

}  // namespace pacecar
