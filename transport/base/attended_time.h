// AttendedTime: the time for which an owner that polls has attended to a wait. The time between two
// polls counts up to a longest turn. In the excess this host was suspended, starved or computing,
// for which a peer is not to blame. Pure. Thread rule: one owner.
#pragma once

#include <algorithm>

#include "transport/base/units.h"

namespace pacecar {

class AttendedTime {
 public:
  explicit AttendedTime(Instant now, Duration longest_turn = Duration::from_s(1))
      : begin_(now), last_(now), longest_turn_(longest_turn) {}

  // By each poll: how much of the time since the last one counts.
  Duration advance(Instant now) {
    const Duration turn = std::min(now - last_, longest_turn_);
    missed_ = missed_ + (now - last_ - turn);
    last_ = now;
    return turn;
  }
  // Advances, and returns `now` minus the time that did not count.
  Instant at(Instant now) {
    advance(now);
    return now - missed_;
  }
  Duration missed() const { return missed_; }
  Duration total() const { return last_ - begin_ - missed_; }

 private:
  Instant begin_;
  Instant last_;
  Duration longest_turn_;
  Duration missed_;
};

}  // namespace pacecar
