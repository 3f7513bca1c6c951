// Chooses the path of each burst of a queue pair, and learns from what comes back about the paths.
//
// Bounded: what is remembered of each path and a ring of paths, only for the policies that use them
// and allocated once. Deterministic: the same seed and the same calls give the same paths.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "transport/base/fixed_queue.h"
#include "transport/base/prng.h"
#include "transport/base/units.h"
#include "transport/softnic/balanced_paths.h"
#include "transport/softnic/path_feedback.h"
#include "transport/softnic/rerouted_path.h"

namespace pacecar {

enum class PathPolicy : uint8_t {
  kRoundRobin,  // one after another
  kFixed,       // always the same, drawn when the queue pair is connected
  kRandom,      // drawn for each burst
  kPenalty,     // one after another; those that had trouble are left out for some turns
  kRecycle,     // those that just worked first, in their order; without any, as kPenalty
  kSticky,      // always the same, until a packet is lost on it
  kBalanced,    // many, so that all have the same delay: BalancedPaths
  kReroute,     // one, another when it is bad: ReroutedPath
};

class PathSelector {
 public:
  // Paths are 0 .. paths-1; at least one, at most 2^16. Differences of delay below `delay_floor`
  // are the hosts' own and mean nothing.
  PathSelector(PathPolicy policy, uint32_t paths, uint64_t seed, Duration delay_floor = {});

  uint16_t next(Instant now);
  void on_feedback(uint16_t path, const PathFeedback& feedback);
  // Whether each packet that arrives counts, not only those that are echoed.
  bool counts() const { return balanced_.has_value(); }
  // Whether it matters what arrives, not only what is lost.
  bool learns() const { return !penalties_.empty() || balanced_ || rerouted_; }

  // A better path is looked for.
  bool searching() const { return rerouted_ && rerouted_->searching(); }
  // Memory beside the object itself.
  static Bytes bytes(PathPolicy policy, uint32_t paths);

 private:
  uint16_t next_without_penalty();
  void add_penalty(uint16_t path, uint8_t turns);

  PathPolicy policy_;
  uint32_t paths_;
  uint32_t cursor_ = 0;  // of the policies that keep to a path, or take one after another
  PathRound round_;
  Prng prng_;
  std::vector<uint8_t> penalties_;  // turns to leave out, by path
  FixedQueue<uint16_t> recycled_;
  std::optional<BalancedPaths> balanced_;
  std::optional<ReroutedPath> rerouted_;
};

}  // namespace pacecar
