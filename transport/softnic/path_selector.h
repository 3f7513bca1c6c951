// Chooses the path of each burst of a queue pair, and learns from what comes back about the paths.
//
// Bounded: a counter for each path and a ring of paths, both only for the policies that use them,
// allocated once. Deterministic: the same seed and the same calls give the same paths.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/base/fixed_queue.h"
#include "transport/base/prng.h"
#include "transport/base/units.h"

namespace pacecar {

enum class PathPolicy : uint8_t {
  kRoundRobin,  // one after another
  kFixed,       // always the same, drawn when the queue pair is connected
  kRandom,      // drawn for each burst
  kPenalty,     // one after another; those that had trouble are left out for some turns
  kRecycle,     // those that just worked first, in their order; without any, as kPenalty
  kSticky,      // always the same, until a packet is lost on it
};

enum class PathFeedback : uint8_t {
  kGood,     // a packet arrived unmarked
  kMarked,   // a packet arrived with congestion experienced
  kTrimmed,  // a packet lost its payload to a full queue
  kLost,     // a packet was lost without a word
};

class PathSelector {
 public:
  // Paths are 0 .. paths-1; at least one, at most 2^16.
  PathSelector(PathPolicy policy, uint32_t paths, uint64_t seed);

  uint16_t next();
  void on_feedback(uint16_t path, PathFeedback feedback);
  // Whether it matters what arrives, not only what is lost.
  bool learns() const { return !penalties_.empty(); }

  // Memory beside the object itself.
  static Bytes bytes(PathPolicy policy, uint32_t paths);

 private:
  uint16_t step();
  uint16_t next_without_penalty();

  PathPolicy policy_;
  uint32_t paths_;
  uint32_t mask_;        // the least 2^n - 1 that covers all paths
  uint32_t cursor_ = 0;  // 0 .. mask_
  uint32_t order_ = 0;   // of the present round: path = cursor ^ order
  Prng prng_;
  std::vector<uint8_t> penalties_;  // turns to leave out, by path
  FixedQueue<uint16_t> recycled_;
};

}  // namespace pacecar
