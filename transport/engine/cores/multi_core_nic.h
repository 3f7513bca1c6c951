// MultiCoreNic: a software NIC on several processor cores. Its user sees one Nic; a MultiCorePort
// drives it.
// Each core is a SoftNic with its own packet I/O. All have the same regions with the same keys. A
// paced queue pair has an end on each core, a lane. The lanes are connected one to one with those
// of the peer; between NICs with different numbers of cores the smaller number is used. Writes are
// divided among the lanes (FlowDivision). They arrive in any order, and their completions are
// returned in the order of posting. Queue pairs without pacing are on the first core only.
// Thread rule: one thread at a time, that of the first core.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "transport/base/fixed_queue.h"
#include "transport/base/work_list.h"
#include "transport/engine/cores/core.h"
#include "transport/engine/cores/flow_division.h"
#include "transport/nic/paced/queue_pair_state.h"

namespace pacecar {

class MultiCoreNic final : public Nic {
 public:
  // SoftNics of extended mode with one key_seed that differ in address only; they outlive this.
  MultiCoreNic(SoftNic& first, std::span<const std::unique_ptr<Core>> further);

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

  // --- MultiCorePort ---
  // Call it first in each turn.
  void set_time(Instant now) { now_ = now; }
  void hand_over();  // Hands over to the cores the posted writes, after the limits.
  bool has_to_hand_over() const { return !undivided_.empty() || !handed_over_; }

 private:
  struct Lane {
    QueuePairId id = 0;
    FixedQueue<uint64_t> writes{0};  // numbers of the pending ones, in order
  };
  struct QueuePair : QueuePairState {
    QueuePair(QueuePairId first, const QueuePairConfig& wanted)
        : QueuePairState(first, wanted), work_requests(wanted.work_requests) {}

    uint32_t work_requests;    // bound, of both ends
    std::vector<Lane> lanes;   // by core
    uint32_t broken_lane = 0;  // the lane that broke it
  };
  // A core's state of a flow: its reports, and the limits sent to it.
  struct CoreOfFlow {
    Bytes in_flight = 0;
    Bytes sent = 0;
    Duration rtt;
    Instant rtt_at = kNever;
    Instant acked_at = kNever;
    uint32_t part = 0;     // of the limits last sent to it
    uint64_t version = 0;  // of those limits
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

  uint32_t cores() const { return static_cast<uint32_t>(further_.size()) + 1; }
  // Only the first has none.
  Core& core(uint32_t index) { return *further_[index - 1]; }
  QueuePair* find(QueuePairId id) const;  // nullptr: the queue pair is on the first core only.
  // The queue pair of a further core's lane; nullptr: none.
  QueuePair* find(uint32_t core, QueuePairId lane) const;
  Flow& flow(FlowId id);
  // Drops the last lane, which must not be the lane of the first core.
  void drop_lane(QueuePair& qp);

  bool post_one(QueuePair& qp, const WorkRequest& work_request);
  // Takes a core's completion. True: return it to the caller at once.
  bool take(uint32_t index, Completion& completion);
  // Turns a core's signal into the signal of the whole flow.
  void merge(FlowSignal& signal, uint32_t index);
  void divide(FlowId id);  // Sends the busy cores of a flow their parts of its limits.
  bool send_limits(uint32_t core, FlowId id, const FlowLimits& limits);

  SoftNic& first_;
  const std::span<const std::unique_ptr<Core>> further_;
  const NicCaps caps_;
  mutable NicCounters counters_;
  bool handed_over_ = true;  // all posts have been handed over
  Instant now_;
  std::vector<std::unique_ptr<QueuePair>> queue_pairs_;  // by slot of the first core
  std::vector<std::vector<QueuePair*>> lanes_;           // by further core and its slot
  std::vector<Flow> flows_;                              // as far as ever used
  WorkList done_;                                        // slots of queue pairs with completions
  WorkList undivided_;                                   // flows whose limits must be divided
};

}  // namespace pacecar
