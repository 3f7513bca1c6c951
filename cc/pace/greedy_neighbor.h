// GreedyNeighbor: recognizes traffic that keeps a queue whatever we do, such as TCP's cubic or a
// controller with a higher target. It is suspected when the delay is far beyond what users of our
// own law agree on, and recognized when it has stayed there for some round trips although we
// yielded. Then the delay that it keeps is no cause to yield, for a second; after that we look
// again. What it keeps is followed down, never up: users of our law that took each other for such
// neighbors free themselves.
//
// Pure; one thread.
#pragma once

#include <algorithm>

#include "transport/base/units.h"

namespace pacecar {

class GreedyNeighbor {
 public:
  // `delay` beyond the empty path's, of which `target` would be no cause to slow down; `rate` is
  // ours, `window` a round trip. True when a neighbor has just been recognized.
  bool look(Instant now, Duration delay, Duration target, double rate, Duration window) {
    if (kept_ > Duration()) {
      if (now >= until_) forget();
      if (delay < kept_ / 2) kept_ = delay;
      return false;
    }
    if (!suspected_) {
      if (delay > target * kFarBeyond) suspect(now, delay, rate);
      return false;
    }
    if (static_cast<double>(delay.ns()) < kFalling * static_cast<double>(most_.ns())) {
      forget();
      return false;
    }
    most_ = std::max(most_, delay);
    sum_ = sum_ + delay;
    ++looks_;
    if (now - since_ < (window + most_) * kYielding) return false;
    kept_ = sum_ / looks_;
    until_ = now + std::max(kHeld, (window + kept_) * kHeldRoundTrips);
    return true;
  }

  // The delay that it keeps; 0: there is none.
  Duration kept() const { return kept_; }
  // What we had when it was suspected.
  double rate_before() const { return rate_; }

  void forget() { *this = {}; }

 private:
  static constexpr int64_t kFarBeyond = 4;  // times what users of our law agree on
  static constexpr double kFalling = 0.75;  // of the most that was seen: somebody yields
  static constexpr int64_t kYielding = 8;   // round trips of yielding in vain
  static constexpr Duration kHeld = Duration::from_s(1);
  static constexpr int64_t kHeldRoundTrips = 32;

  void suspect(Instant now, Duration delay, double rate) {
    suspected_ = true;
    since_ = now;
    most_ = delay;
    rate_ = rate;
  }

  bool suspected_ = false;
  Instant since_;
  Duration most_;
  double rate_ = 0;
  Duration sum_;
  int64_t looks_ = 0;
  Duration kept_;
  Instant until_;
};

}  // namespace pacecar
