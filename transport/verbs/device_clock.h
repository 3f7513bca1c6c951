// DeviceClock: how late a completion was polled, by the device's time stamp.
//
// The device's clock and ours are never compared directly. The anchor is the stamp that was polled
// with the least delay. From the anchor to a completion some time passes between the polls, and
// some between the stamps. If the polls are further apart, the completion was polled late, by the
// difference. Neither clock is exact, so the older the anchor, the smaller the lateness that
// counts.
//
// The lateness is at most the time since the last poll that found nothing. So a clock that stops,
// jumps, wraps or has a wrong frequency does no more harm than that, and is soon ignored.
//
// Pure. Thread rule: one owner.
#pragma once

#include <cstdint>

#include "transport/base/units.h"

namespace pacecar {

class DeviceClock {
 public:
  // `khz` > 0; `mask`: the bits of a stamp, all ones from the lowest on.
  DeviceClock(uint64_t khz, uint64_t mask);

  // Of a completion that is polled at `now`; at `emptied` the queue was empty. 0: unknown.
  Duration lateness(uint64_t stamp, Instant now, Instant emptied);
  // False: many stamps made no sense, and all are ignored from now on.
  bool trusted() const { return nonsense_ < kMostNonsense; }

 private:
  static constexpr uint32_t kNonsense = 64;  // one impossible stamp among so many is tolerated
  static constexpr uint32_t kMostNonsense = 32 * kNonsense;

  // From the anchor to `stamp`, by the device's clock; less than half of its period either way.
  Duration since_anchor(uint64_t stamp) const;

  uint64_t mask_;
  uint64_t tick_;         // ns, in 2^-32
  Duration half_period_;  // of the stamp's range
  uint64_t anchor_stamp_ = 0;
  Instant anchored_ = Instant::never();  // when the anchor was polled; never(): none
  uint32_t nonsense_ = 0;
};

}  // namespace pacecar
