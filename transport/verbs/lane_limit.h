// LaneLimit: the rate that the device keeps a lane to, and what that means for its round trips.
//
// Until when the device holds a chunk back is not known: by the limit at most, but it may send a
// burst first. A round trip is taken to begin as late as the limit allows, and not to be shorter
// than the shortest that was measured without one.
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

  // How much later than at `departure` what is handed over `now` may leave. `wire_bytes`: what it
  // takes of the link.
  Duration hold(Instant now, Instant departure, Bytes wire_bytes) {
    if (rate_ == Rate()) return {};
    free_ = std::max(free_, now) + rate_.time_for(wire_bytes);
    return std::max(free_ - departure, Duration());
  }

  // Of what was held back by `held` at most, and came back `since` its departure.
  Duration round_trip(Duration since, Duration held) {
    if (held == Duration()) shortest_ = std::min(shortest_, since);
    return std::max(since - held, std::min(shortest_, since));
  }

 private:
  Rate rate_;
  Instant free_;  // when all that it has may have left
  Duration shortest_ = Duration::max();
};

}  // namespace pacecar
