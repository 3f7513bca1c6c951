// MultiCoreNic: a software NIC on several processor cores. Its user sees one Nic: the owner's
// thread drives the first core with the calls of a NicPort, like a single SoftNic; each other core
// has its own thread.
//
// Each core is a SoftNic with its own packet I/O. All have the same regions with the same keys. A
// paced queue pair has an end on each core, a lane. The lanes are connected one to one with those
// of the peer; between NICs with different numbers of cores the smaller number is used. Writes are
// divided among the lanes (FlowDivision). They arrive in any order, and their completions are
// returned in the order of posting. Queue pairs without pacing are on the first core only.
//
// Thread rule: one thread at a time, except wait_fd().
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/base/fixed_queue.h"
#include "transport/base/work_list.h"
#include "transport/engine/cores/core.h"
#include "transport/engine/cores/core_thread.h"
#include "transport/engine/cores/flow_division.h"
#include "transport/engine/soft_port.h"

namespace pacecar {

class MultiCoreNic final : public Nic, public NicPort {
 public:
  // `ports`: one for each core; SoftNics of the extended mode that differ only in their address,
  // all with one key_seed. `processors`: where the threads run; null: anywhere. Without a clock
  // there are no threads: receive() drives all cores, in virtual time. Errors: kSystem.
  static Result<std::unique_ptr<MultiCoreNic>> make(
      std::vector<std::unique_ptr<SoftPort>> ports, const CoreThreadConfig& config,
      std::unique_ptr<Processors> processors = nullptr);
  ~MultiCoreNic() override;

  // --- Nic ---
  const NicCaps& caps() const override { return caps_; }
  const NicCounters& counters() const override;
  Result<MemoryRegion> register_memory(void* address, size_t length, Access access) override;
  std::shared_ptr<void> deregister_memory(const MemoryRegion& region) override;
  Result<QueuePairId> create_queue_pair(const QueuePairConfig& config) override;
  QueuePairAddress queue_pair_address(QueuePairId id) const override;
  Result<void> connect_queue_pair(QueuePairId id, std::span<const uint8_t> remote) override;
  std::string peer(QueuePairId id) const override { return first_.peer(id); }
  QueuePairMemory queue_pair_memory(const QueuePairConfig& config) const override;
  std::string fault(QueuePairId id) const override;
  void halt_queue_pair(QueuePairId id) override;
  void destroy_queue_pair(QueuePairId id) override;
  size_t post(QueuePairId id, std::span<const WorkRequest> work_requests) override;
  size_t poll(std::span<Completion> completions) override;
  size_t poll_signals(std::span<FlowSignal> signals) override;
  void report_arrivals(bool wanted) override;
  size_t poll_arrivals(std::span<FlowArrival> arrivals) override;
  void set_flow_limits(FlowId flow, const FlowLimits& limits, Instant now) override;

  // --- NicPort ---
  Nic& nic() override { return *this; }
  size_t receive(Instant now) override;
  void on_time(Instant now) override;
  size_t transmit(Instant now) override;
  Instant next_deadline() const override;
  bool prepare_to_wait() override;
  int wait_fd() const override { return wait_fd_.get(); }
  const Address& address() const override { return port_->address(); }

 private:
  struct Posted {
    uint64_t id = 0;
    Bytes bytes = 0;
    uint32_t core = 0;
    CompletionStatus status = CompletionStatus::kOk;
    bool signaled = true;
    bool done = false;
  };
  struct Lane {
    QueuePairId id = 0;
    FixedQueue<uint32_t> writes{0};  // numbers of the pending ones, in order
  };
  struct QueuePair {
    explicit QueuePair(const QueuePairConfig& config)
        : flow(config.flow), work_requests(config.work_requests), posted(config.work_requests) {}

    QueuePairId id = 0;  // that of its first lane
    const FlowId flow;
    uint32_t work_requests;                     // bound
    FixedQueue<Posted> posted;                  // writes whose completion has not been returned
    uint32_t first_posted = 0;                  // the number of the oldest, modulo 2^32
    std::vector<Lane> lanes;                    // by core
    uint32_t broken_lane = 0;                   // the lane that broke it
    std::optional<CompletionStatus> broken_by;  // the lane's status
    bool reported = false;                      // kBroken has been returned
  };
  // A core's state of a flow: its reports, and the limits sent to it.
  struct CoreOfFlow {
    Bytes in_flight = 0;
    Bytes sent = 0;
    Duration rtt;
    Instant rtt_at = kNever;
    Instant acked_at = kNever;
    uint32_t part = 0;     // of the limits,
    uint64_t version = 0;  // these
  };
  static constexpr Instant kNever = Instant::from_ns(INT64_MIN / 2);

  struct Flow {
    Flow(uint32_t count, FlowId id) : division(count, id) {}

    FlowDivision division;
    FlowLimits limits;
    uint32_t queue_pairs = 0;
    uint64_t limits_version = 0;
    std::array<CoreOfFlow, FlowDivision::kMaxCores> cores{};
  };

  MultiCoreNic(std::unique_ptr<SoftPort> first, uint32_t cores, std::unique_ptr<Doorbell> bell,
               std::unique_ptr<Processors> processors);
  Result<void> start(std::vector<std::unique_ptr<SoftPort>> further,
                     const CoreThreadConfig& config);

  uint32_t cores() const { return static_cast<uint32_t>(further_.size()) + 1; }
  // Only the first has none.
  Core& core(uint32_t index) { return *further_[index - 1]; }
  // nullptr: the queue pair is on the first core only.
  QueuePair* find(QueuePairId id) const;
  // The queue pair of a further core's lane; nullptr: none.
  QueuePair* find(uint32_t core, QueuePairId lane) const;
  Flow& flow(FlowId id);
  // Drops the last lane, which must not be the first core's.
  void drop_lane(QueuePair& qp);

  bool post_one(QueuePair& qp, const WorkRequest& work_request);
  // Takes a core's completion. True: return it to the caller at once.
  bool take(uint32_t index, Completion& completion);
  // Returns completions in order; the result is their number.
  size_t report_done(QueuePair& qp, std::span<Completion> completions);
  // Makes a core's signal the whole flow's.
  void merge(FlowSignal& signal, uint32_t index);
  // Sends the busy cores of a flow their parts of its limits.
  void divide(FlowId id);
  bool send_limits(uint32_t core, FlowId id, const FlowLimits& limits);

  const std::unique_ptr<Processors> processors_;
  const std::unique_ptr<SoftPort> port_;
  SoftNic& first_;
  NicCaps caps_;
  mutable NicCounters counters_;
  const std::unique_ptr<Doorbell> bell_;  // for a thread that sleeps on wait_fd()
  FileDescriptor wait_fd_;                // an epoll instance
  bool expecting_ = false;
  bool handed_over_ = true;  // all posts have been handed over
  Instant now_;
  std::vector<std::unique_ptr<Core>> further_;
  std::vector<std::unique_ptr<QueuePair>> queue_pairs_;  // by slot of the first core
  std::vector<std::vector<QueuePair*>> lanes_;           // by further core and its slot
  std::vector<Flow> flows_;                              // as far as ever used
  WorkList done_;                                        // slots of queue pairs with completions
  WorkList undivided_;                                   // flows whose limits must be divided
  std::vector<std::jthread> threads_;                    // they end first
};

}  // namespace pacecar
