// LaneLimit: the rate limit of a lane in the device, and its effect on measured round trips.
//
// How long the device delays a chunk is not known: at most as the limit requires, but it may send a
// burst first. A round trip is taken to begin as late as the limit allows, and to be no shorter
// than the shortest one without a limit.
//
// Pure. Thread rule: one owner.
#pragma once

#include <algorithm>

#include "transport/base/units.h"

namespace pacecar {

class LaneLimit {
 public:
  Rate rate() const { return rate_; }  // 0: none
  void set(Rate rate) { rate_ = rate; }

  // How much later than `departure` a chunk posted `now` may leave. `wire_bytes`: its size on the
  // link.
  Duration hold(Instant now, Instant departure, Bytes wire_bytes) {
    if (rate_ == Rate()) return {};
    free_ = std::max(free_, now) + rate_.time_for(wire_bytes);
    return std::max(free_ - departure, Duration());
  }

  // The round trip of a chunk that was delayed by at most `held`, and completed `since` after its
  // departure.
  Duration round_trip(Duration since, Duration held) {
    if (held == Duration()) shortest_ = std::min(shortest_, since);
    return std::max(since - held, std::min(shortest_, since));
  }

 private:
  Rate rate_;
  Instant free_;  // the latest time at which everything posted has left
  Duration shortest_ = Duration::max();
};

}  // namespace pacecar
