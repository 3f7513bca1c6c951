#include "transport/verbs/device_clock.h"

#include <algorithm>
#include <bit>

namespace pacecar {
namespace {

// A NIC's clock is wrong by at most 100 ppm (IEEE 802.3), a host's by 500 ppm (NTP): together less
// than 1/1024.
constexpr int64_t kDrift = 1024;
// A completion may take this much longer than others from the device to our poll.
constexpr Duration kSlowest = Duration::from_us(100);
constexpr uint64_t kNsPerTickAtOneKhz = 1'000'000;
constexpr int kFraction = 32;

}  // namespace

DeviceClock::DeviceClock(uint64_t khz, uint64_t mask)
    : mask_(mask), tick_((kNsPerTickAtOneKhz << kFraction) / khz) {
  const unsigned __int128 half = (static_cast<unsigned __int128>(mask / 2) * tick_) >> kFraction;
  half_period_ = Duration::from_ns(static_cast<int64_t>(
      std::min<unsigned __int128>(half, static_cast<uint64_t>(Duration::max().ns()))));
}

Duration DeviceClock::since_anchor(uint64_t stamp) const {
  const int spare = std::countl_zero(mask_);
  const auto ticks = static_cast<int64_t>((stamp - anchor_stamp_) << spare) >> spare;
  return Duration::from_ns(
      static_cast<int64_t>((static_cast<__int128>(ticks) * tick_) >> kFraction));
}

Duration DeviceClock::lateness(uint64_t stamp, Instant now, Instant emptied) {
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

}  // namespace pacecar
