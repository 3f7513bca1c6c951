// DeviceClock: how late we polled a completion that the device has stamped with its own clock.
//
// The two clocks are never compared directly. The anchor is the stamp that was polled with the
// least delay. A completion that is polled longer after the anchor than it is stamped after it was
// polled late, by the difference. An anchor ages, as neither clock is exact: the older it is, the
// less lateness it proves.
//
// A stamp proves at most the time since the last poll that found nothing. So a clock that stops,
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

  // For a completion that is polled at `now` and was not there at `looked`; 0: unknown.
  Duration lateness(uint64_t stamp, Instant now, Instant looked);
  // Most stamps have made sense. Once false, stamps are ignored.
  bool trusted() const { return nonsense_ < kMostNonsense; }

 private:
  static constexpr uint32_t kNonsense = 64;  // one bad stamp in so many is tolerated
  static constexpr uint32_t kMostNonsense = 32 * kNonsense;

  // From the anchor to `stamp`, by the device; less than half of its clock's period either way.
  Duration since_anchor(uint64_t stamp) const;
  void anchor(uint64_t stamp, Instant now);
  Duration distrust(uint64_t stamp, Instant now);

  uint64_t mask_;
  uint64_t tick_;         // ns, in 2^-32
  Duration half_period_;  // of the stamp's range
  uint64_t anchor_stamp_ = 0;
  Instant anchored_ = Instant::never();  // when the anchor was polled; never(): none
  uint32_t nonsense_ = 0;
};

}  // namespace pacecar
