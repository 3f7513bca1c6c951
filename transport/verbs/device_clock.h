// DeviceClock: how late we saw what the device had stamped with its own clock.
//
// The two clocks are never compared as such. Of all stamps the one that was seen soonest is the
// anchor: what is stamped so much after it and seen still later, we were late to see. An anchor
// ages, as neither clock is exact: the older, the less lateness it proves.
//
// A stamp can prove no more lateness than the time since we last looked, and found nothing: a clock
// that stands, jumps, wraps or has another frequency than it says does no more harm than that, and
// is soon not believed at all.
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

  // Of what is seen at `now` and was not there at `looked`; 0 when nothing is known.
  Duration lateness(uint64_t stamp, Instant now, Instant looked);
  // Most stamps have made sense. Once they have not, they are not looked at any more.
  bool trusted() const { return nonsense_ < kMostNonsense; }

 private:
  static constexpr uint32_t kNonsense = 64;  // one in so many is borne
  static constexpr uint32_t kMostNonsense = 32 * kNonsense;

  // From the anchor to `stamp`, by the device; less than half of its clock's period either way.
  Duration since_anchor(uint64_t stamp) const;
  void anchor(uint64_t stamp, Instant now);
  Duration distrust(uint64_t stamp, Instant now);

  uint64_t mask_;
  uint64_t tick_;         // ns, in 2^-32
  Duration half_period_;  // of what fits a stamp
  uint64_t anchor_stamp_ = 0;
  Instant anchored_ = Instant::never();  // when we saw the anchor; never(): there is none
  uint32_t nonsense_ = 0;
};

}  // namespace pacecar
