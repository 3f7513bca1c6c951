// AttendedTime: the time for which an owner that polls has attended to a wait. What lies between
// two polls counts up to 1 s: beyond it this host was suspended or busy, which is no fault of a
// peer. Pure. Thread rule: one owner.
#pragma once

#include <algorithm>

#include "transport/base/units.h"

namespace pacecar {

class AttendedTime {
 public:
  explicit AttendedTime(Instant now) : last_(now) {}

  // `now` without what has been missed. Called by each poll.
  Instant at(Instant now) {
    missed_ = missed_ + std::max(now - last_ - kMost, Duration());
    last_ = now;
    return now - missed_;
  }
  // In all.
  Duration missed() const { return missed_; }

 private:
  static constexpr Duration kMost = Duration::from_s(1);

  Instant last_;
  Duration missed_;
};

}  // namespace pacecar
