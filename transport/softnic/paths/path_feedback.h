// PathFeedback: what a sender learns about a path. PathRound: the order of trying. Pure; one owner.
#pragma once

#include <bit>
#include <cstdint>

#include "transport/base/prng.h"
#include "transport/base/units.h"

namespace pacecar {

enum class PathEvent : uint8_t {
  kGood,     // a packet arrived unmarked
  kArrived,  // a packet arrived; whether it was marked is not known
  kMarked,   // a packet arrived with congestion experienced
  kTrimmed,  // a packet lost its payload to a full queue
  kLost,     // a packet was lost without a notice by the receiver
};

struct PathFeedback {
  PathEvent event = PathEvent::kGood;
  Duration rtt;  // of a packet that arrived; 0: unknown
  Instant now;
  Instant sent;  // equal for packets of one burst; Instant(): unknown
};

// Takes each path once per round, in an order that changes from round to round, so that senders
// that began at the same time do not stay in step.
class PathRound {
 public:
  explicit PathRound(uint32_t paths) : paths_(paths), mask_(std::bit_ceil(paths) - 1) {}

  void shuffle(Prng& prng) { order_ = static_cast<uint32_t>(prng.next_u64()) & mask_; }
  uint16_t next(Prng& prng) {
    for (;;) {
      const uint32_t path = cursor_ ^ order_;
      cursor_ = (cursor_ + 1) & mask_;
      if (cursor_ == 0) shuffle(prng);
      if (path < paths_) return static_cast<uint16_t>(path);
    }
  }

 private:
  uint32_t paths_;
  uint32_t mask_;        // the least 2^n - 1 that covers all paths
  uint32_t cursor_ = 0;  // 0 .. mask_
  uint32_t order_ = 0;   // of the present round: path = cursor ^ order
};

}  // namespace pacecar
