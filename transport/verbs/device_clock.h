// DeviceClock: how late a completion was polled, by the device's time stamp. The device's clock and
// ours are never compared directly. The anchor is the stamp that was polled with the least delay.
// From the anchor to a completion some time passes between the polls, and some between the stamps.
// If the polls are further apart, the completion was polled late, by the difference. Neither clock
// is exact, so the older the anchor, the less lateness counts. The lateness is at most the time
// since the last poll that found nothing. So a clock that stops, jumps, wraps or has a wrong
// frequency does no more harm, and is soon ignored. Pure; one owner.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "transport/base/units.h"

namespace pacecar {

class DeviceClock {
 public:
  // `khz` > 0; `mask`: the bits of a stamp, all ones from the lowest on.
  DeviceClock(uint64_t khz, uint64_t mask)
      : mask_(mask), tick_((kNsPerTickAtOneKhz << kFraction) / khz) {
    const unsigned __int128 half = (static_cast<unsigned __int128>(mask / 2) * tick_) >> kFraction;
    half_period_ = Duration::from_ns(static_cast<int64_t>(
        std::min<unsigned __int128>(half, static_cast<uint64_t>(Duration::max().ns()))));
  }

  // How late a completion is polled at `now`; the queue was last empty at `emptied`. 0: unknown.
  Duration lateness(uint64_t stamp, Instant now, Instant emptied) {
    if (!trusted()) return {};
    const bool anchored = anchored_ != Instant::never() && now - anchored_ < half_period_;
    const Duration ours = anchored ? now - anchored_ : Duration();
    const Duration late = anchored ? ours - since_anchor(stamp) - ours / kDrift : Duration();
    const Duration most = now - emptied;
    const bool impossible = late > Duration() && late > most + kSlowest;
    if (late <= Duration() || impossible) {
      anchor_stamp_ = stamp;
      anchored_ = now;
      if (impossible) nonsense_ += kNonsense;
      return {};
    }
    if (nonsense_ > 0) --nonsense_;
    return std::min(late, most);
  }
  // False: many stamps made no sense, and all are ignored from now on.
  bool trusted() const { return nonsense_ < kMostNonsense; }

 private:
  static constexpr uint32_t kNonsense = 64;  // one impossible stamp among this many is tolerated
  static constexpr uint32_t kMostNonsense = 32 * kNonsense;

  // A NIC's clock is wrong by at most 100 ppm (IEEE 802.3), a host clock by 500 ppm (NTP): together
  // less than 1/1024.
  static constexpr int64_t kDrift = 1024;
  // A completion may take this much longer than others from the device to our poll.
  static constexpr Duration kSlowest = Duration::from_us(100);
  static constexpr uint64_t kNsPerTickAtOneKhz = 1'000'000;
  static constexpr int kFraction = 32;  // bits of tick_

  // From the anchor to `stamp`, by the device's clock; less than half of its period either way.
  Duration since_anchor(uint64_t stamp) const {
    const int spare = std::countl_zero(mask_);
    const auto ticks = static_cast<int64_t>((stamp - anchor_stamp_) << spare) >> spare;
    return Duration::from_ns(
        static_cast<int64_t>((static_cast<__int128>(ticks) * tick_) >> kFraction));
  }

  uint64_t mask_;
  uint64_t tick_;         // ns, in 2^-32
  Duration half_period_;  // of the stamp's range
  uint64_t anchor_stamp_ = 0;
  Instant anchored_ = Instant::never();  // when the anchor was polled; never(): none
  uint32_t nonsense_ = 0;
};

}  // namespace pacecar
