#include "transport/softnic/paths/path_selector.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "transport/base/check.h"

namespace pacecar {
namespace {

// Turns that a path is skipped, at most the maximum; as in Ultra Ethernet's reference simulator.
constexpr uint8_t kMarkedPenalty = 1;
constexpr uint8_t kTrimmedPenalty = 4;
constexpr uint8_t kLostPenalty = 15;
constexpr uint8_t kMaxPenalty = 15;
constexpr size_t kRecycledPerPath = 4;  // Good paths that are remembered, per path.

bool has_penalties(PathPolicy policy) {
  return policy == PathPolicy::kPenalty || policy == PathPolicy::kRecycle;
}
size_t recycled_capacity(PathPolicy policy, uint32_t paths) {
  return policy == PathPolicy::kRecycle ? paths * kRecycledPerPath : 0;
}

}  // namespace

PathSelector::PathSelector(PathPolicy policy, uint32_t paths, uint64_t seed, Duration delay_floor)
    : policy_(policy),
      paths_(paths),
      round_(paths),
      prng_(seed),
      penalties_(has_penalties(policy) ? paths : 0),
      recycled_(recycled_capacity(policy, paths)) {
  PACECAR_CHECK(paths > 0 && paths <= (1U << 16));
  if (policy == PathPolicy::kFixed || policy == PathPolicy::kSticky) {
    cursor_ = static_cast<uint32_t>(prng_.below(paths));
  }
  if (has_penalties(policy)) round_.shuffle(prng_);
  if (policy == PathPolicy::kBalanced) balanced_.emplace(paths, delay_floor, prng_);
  if (policy == PathPolicy::kReroute) rerouted_.emplace(paths, delay_floor, prng_);
}

Bytes PathSelector::bytes(PathPolicy policy, uint32_t paths) {
  if (policy == PathPolicy::kBalanced) return BalancedPaths::bytes(paths);
  if (policy == PathPolicy::kReroute) return ReroutedPath::bytes(paths);
  const Bytes recycled = std::bit_ceil(std::max<size_t>(recycled_capacity(policy, paths), 1));
  return recycled * sizeof(uint16_t) + (has_penalties(policy) ? paths : 0);
}

uint16_t PathSelector::next(Instant now) {
  switch (policy_) {
    case PathPolicy::kFixed:
    case PathPolicy::kSticky: return static_cast<uint16_t>(cursor_);
    case PathPolicy::kRandom: return static_cast<uint16_t>(prng_.below(paths_));
    case PathPolicy::kPenalty: return next_without_penalty();
    case PathPolicy::kRecycle: {
      if (recycled_.empty()) return next_without_penalty();
      const uint16_t path = recycled_.front();
      recycled_.pop_front();
      return path;
    }
    case PathPolicy::kBalanced: return balanced_->next(now, prng_);
    case PathPolicy::kReroute: return rerouted_->next();
    case PathPolicy::kRoundRobin: break;
  }
  const uint32_t path = cursor_;
  cursor_ = path + 1 == paths_ ? 0 : path + 1;
  return static_cast<uint16_t>(path);
}

// A search reduces only the penalty of the first path that it skips. So a few bad paths among many
// are skipped for long. If all paths have penalties, it takes any.
uint16_t PathSelector::next_without_penalty() {
  uint16_t path = round_.next(prng_);
  if (penalties_[path] == 0) return path;
  --penalties_[path];
  path = round_.next(prng_);
  for (uint32_t i = 0; i < paths_ && penalties_[path] > 0; ++i) path = round_.next(prng_);
  return path;
}

void PathSelector::on_feedback(uint16_t path, const PathFeedback& feedback) {
  if (path >= paths_) return;
  if (balanced_) return balanced_->on_feedback(path, feedback, prng_);
  if (rerouted_) return rerouted_->on_feedback(path, feedback, prng_);
  if (policy_ == PathPolicy::kSticky && feedback.event == PathEvent::kLost && path == cursor_) {
    cursor_ = (cursor_ + 1) % paths_;
  }
  if (penalties_.empty()) return;
  switch (feedback.event) {
    case PathEvent::kArrived: break;
    case PathEvent::kGood: recycled_.push(std::as_const(path)); break;
    case PathEvent::kMarked: return add_penalty(path, kMarkedPenalty);
    case PathEvent::kTrimmed: return add_penalty(path, kTrimmedPenalty);
    case PathEvent::kLost: return add_penalty(path, kLostPenalty);
  }
}

void PathSelector::add_penalty(uint16_t path, uint8_t turns) {
  penalties_[path] = std::min<uint8_t>(penalties_[path] + turns, kMaxPenalty);
}

}  // namespace pacecar
