// ArrivalMeter: the rate of arriving bytes, and their least recent delay. A window has four looks:
// rate of the last window, least delay of the last round trip. With several paths, some packet of a
// round trip has met only the queue that all paths share. Rates are bit/s. Pure; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "transport/base/units.h"

namespace pacecar {

class ArrivalMeter {
 public:
  // `packet`: a full one; measurements of fewer than a few are too noisy.
  ArrivalMeter(Duration window, Duration round_trip, Bytes packet)
      : window_(window),
        round_trip_(round_trip),
        look_(window / static_cast<int64_t>(kLooks)),
        packet_(packet) {}

  // Resets everything; bytes that arrive now are not counted, as the time they took is unknown.
  void begin(Instant now) {
    looks_.fill({});
    began_ = now;
    bytes_ = 0;
    least_ = Duration::max();
  }

  // `delay`: of their fastest packet, Duration::max() if unknown. True when a look is over.
  bool on_bytes(Instant now, Bytes bytes, Duration delay) {
    bytes_ += bytes;
    least_ = std::min(least_, delay);
    const Duration lasted = now - began_;
    if (lasted < look_) return false;
    const Bytes enough = packet_ * (lasted < window_ ? kPacketsPerLook : kFewPackets);
    if (bytes_ < enough && lasted < kLongestLook) return false;
    close_look(now);
    return true;
  }

  double rate() const { return rate_; }
  // The highest rate of the last looks, so that a pausing sender is not mistaken for a slower link.
  double most_lately() const { return std::ranges::max(looks_, {}, &Look::rate).rate; }
  // Duration::max(): unknown.
  Duration delay() const { return delay_; }

  static constexpr Duration kLongestLook = Duration::from_ms(50);

 private:
  static constexpr size_t kLooks = 4;  // in a window
  static constexpr Bytes kPacketsPerLook =
      6;  // fewer may all be late by chance; after a window kFewPackets are enough
  static constexpr Bytes kFewPackets = 2;

  struct Look {
    Instant began;
    Instant end = Instant::from_ns(0);
    Bytes bytes = 0;
    Duration least = Duration::max();
    double rate = 0;  // of the window that ended with it
  };
  static double rate_of(Bytes bytes, Duration span) {
    return static_cast<double>(bytes) * 8 / span.seconds();
  }

  void close_look(Instant now) {
    Look& newest = looks_[next_];
    newest = {began_, now, bytes_, least_};
    next_ = (next_ + 1) % kLooks;
    Bytes bytes = 0;
    Instant began = now;
    delay_ = Duration::max();
    // On a slow link a look takes longer than a window.
    const Duration window = std::max(window_, (now - began_) * static_cast<int64_t>(kLooks));
    for (const Look& look : looks_) {
      if (look.bytes == 0 || now - look.end >= window) continue;
      bytes += look.bytes;
      began = std::min(began, look.began);
      if (now - look.end < round_trip_) delay_ = std::min(delay_, look.least);
    }
    rate_ = now > began ? rate_of(bytes, now - began) : 0;
    newest.rate = rate_;
    began_ = now;
    bytes_ = 0;
    least_ = Duration::max();
  }

  const Duration window_;
  const Duration round_trip_;
  const Duration look_;
  const Bytes packet_;
  std::array<Look, kLooks> looks_{};  // the last ones
  size_t next_ = 0;
  double rate_ = 0;
  Duration delay_ = Duration::max();
  // The present look.
  Instant began_;
  Bytes bytes_ = 0;
  Duration least_ = Duration::max();
};

}  // namespace pacecar
