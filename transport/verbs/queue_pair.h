// VerbsQueuePair: a queue pair of VerbsNic: its lanes, its work requests and their completions. The
// NIC decides when a posted work request may leave. Thread rule: one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/nic/paced/queue_pair_state.h"
#include "transport/verbs/standby_lane.h"

namespace pacecar {

struct VerbsQueuePair : QueuePairState {
  // The most work requests at the device at once, over all lanes; fewer if its queues are short.
  static constexpr uint32_t kMaxStarted = 128;
  static constexpr uint32_t kMaxCompletions =
      kMaxStarted + StandbyLane::kCompletions + RcEndpoint::kMaxLanes;

  using QueuePairState::QueuePairState;

  static uint32_t max_started(const QueuePairConfig& config) {
    return config.work_requests < kMaxStarted ? config.work_requests : kMaxStarted;
  }
  // The most completions that it may have outstanding.
  static uint32_t max_completions(const QueuePairConfig& config) {
    return max_started(config) + StandbyLane::kCompletions + RcEndpoint::kMaxLanes;
  }

  bool can_start() const {
    return connected() && started < lane_config.work_requests && work.waiting() != nullptr &&
           any_lane_up();
  }
  bool any_lane_up() const {
    return std::ranges::any_of(std::span(lanes).first(lanes_used), &Lane::up);
  }
  bool all_lanes_up() const { return std::ranges::all_of(lanes, &Lane::up); }
  // Whether lanes that fail may come back.
  bool recovers() const { return connected() && standby->usable(); }
  // The lane for the next chunk: among the lanes that are up, one with the fewest bytes in flight,
  // the first from `turn` on. At least one lane must be up.
  size_t next_lane();

  size_t lanes_used = 0;
  size_t turn = 0;
  std::vector<Lane> lanes;
  std::unique_ptr<StandbyLane> standby;
  RcEndpoint remote;
  LaneConfig lane_config;
};

// A batch of work requests of one queue pair: one chain per lane.
class PostBatch {
 public:
  static constexpr size_t kCapacity = 32;

  explicit PostBatch(VerbsQueuePair& queue_pair) : queue_pair_(queue_pair) {}

  bool full() const { return count_ == kCapacity; }
  size_t size() const { return count_; }
  // `departure`: when its last byte leaves the device at line rate.
  void add(const WorkRequest& request, uint64_t number, Instant departure);
  int post();  // 0, or the errno of the first lane that refused.

 private:
  struct Chain {
    ibv_send_wr* first = nullptr;
    ibv_send_wr* last = nullptr;
  };

  VerbsQueuePair& queue_pair_;
  size_t count_ = 0;
  std::array<Chain, RcEndpoint::kMaxLanes> chains_;
  std::array<ibv_send_wr, kCapacity> requests_;
  std::array<ibv_sge, kCapacity> pieces_;
};

}  // namespace pacecar
