// PathSelector: chooses the path of each burst of a queue pair, and learns from feedback about
// paths. Bounded: state per path and a ring of paths, only for policies that use them, allocated
// once. Deterministic: the same seed and the same calls give the same paths. One owner.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "transport/base/fixed_queue.h"
#include "transport/base/prng.h"
#include "transport/base/units.h"
#include "transport/softnic/paths/balanced_paths.h"
#include "transport/softnic/paths/path_feedback.h"
#include "transport/softnic/paths/rerouted_path.h"

namespace pacecar {

enum class PathPolicy : uint8_t {
  kRoundRobin,  // one after another
  kFixed,       // one path, drawn when the queue pair is connected
  kRandom,      // drawn for each burst
  kPenalty,   // one after another; paths with marks, trimming or losses are skipped for some turns
  kRecycle,   // paths whose packets arrived unmarked, oldest first; without any, as kPenalty
  kSticky,    // one path, until a packet is lost on it
  kBalanced,  // many, so that all have the same delay: BalancedPaths
  kReroute,   // one, and another when it is bad: ReroutedPath
};

class PathSelector {
 public:
  // Paths are 0 .. paths-1; at least one, at most 2^16. Differences of delay below `delay_floor`
  // come from the hosts and are ignored.
  PathSelector(PathPolicy policy, uint32_t paths, uint64_t seed, Duration delay_floor = {});

  uint16_t next(Instant now);
  void on_feedback(uint16_t path, const PathFeedback& feedback);
  // Whether every acknowledged packet is feedback, not only the echoed ones.
  bool counts() const { return balanced_.has_value(); }
  // Whether arrivals are feedback, not only losses.
  bool learns() const { return !penalties_.empty() || balanced_ || rerouted_; }

  bool searching() const { return rerouted_ && rerouted_->searching(); }
  static Bytes bytes(PathPolicy policy, uint32_t paths);  // Memory outside the object.

 private:
  uint16_t next_without_penalty();
  void add_penalty(uint16_t path, uint8_t turns);

  PathPolicy policy_;
  uint32_t paths_;
  uint32_t cursor_ = 0;  // of the policies that keep to a path, or take one after another
  PathRound round_;
  Prng prng_;
  std::vector<uint8_t> penalties_;  // turns to skip, by path
  FixedQueue<uint16_t> recycled_;
  std::optional<BalancedPaths> balanced_;
  std::optional<ReroutedPath> rerouted_;
};

}  // namespace pacecar
