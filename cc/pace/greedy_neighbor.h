// GreedyNeighbor: recognizes traffic that keeps a queue whatever we do, such as TCP's cubic or a
// controller with a higher target. A neighbor is suspected when the delay is over three times that
// on which users of our own law agree, and recognized when the delay has stayed there for 12 round
// trips although we yielded half of our rate. It is forgotten when the delay changes, and every 4
// s: all processes of a host test again at the same moments, by its clock, so that users of our law
// that mistook each other for such neighbors recover.
//
// Pure; one thread.
#pragma once

#include <algorithm>

#include "transport/base/units.h"

namespace pacecar {

class GreedyNeighbor {
 public:
  // `delay`: beyond the empty path's; `usual`: on which users of our law agree; `window`: a round
  // trip; `rate`: that we use. True when a neighbor has just been recognized.
  bool look(Instant now, Duration delay, Duration usual, Duration window, double rate) {
    if (kept_ > Duration()) {
      if (delay >= kept_ / 2 && delay <= kept_ * 2) kept_seen_ = now;
      const bool other = now - kept_seen_ > (window + kept_) * kGone;
      if (now >= until_ || other) forget();
      return false;
    }
    const bool far_beyond = delay > usual * kFarBeyond;
    const bool falling =
        static_cast<double>(delay.ns()) < kFalling * static_cast<double>(most_.ns());
    if (!suspected_ || falling) {
      // During a suspicion the rate before its beginning counts.
      const double before = suspected_ ? rate_ : rate;
      forget();
      suspected_ = far_beyond;
      since_ = now;
      most_ = delay;
      rate_ = before;
      return false;
    }
    most_ = std::max(most_, delay);
    sum_ = sum_ + delay;
    ++looks_;
    stays_ = now - since_ >= (window + most_) * kGentle;
    if (now - since_ < (window + most_) * (kGentle + kYielding)) return false;
    if (rate > rate_ * kYielded) return false;
    kept_ = sum_ / looks_;
    const int64_t period = kLookAgain.ns();
    kept_seen_ = now;
    until_ = Instant::from_ns(((now + kLookAgain / 4).ns() / period + 1) * period);
    return true;
  }

  // The delay has stayed far beyond the usual one: leave what is yielded now to others, so that two
  // users of our law do not mistake each other for such a neighbor.
  bool stays() const { return stays_; }
  // The delay that the neighbor keeps; 0: no neighbor.
  Duration kept() const { return kept_; }

  void forget() { *this = {}; }

 private:
  static constexpr int64_t kFarBeyond = 3;  // times the delay on which users of our law agree
  static constexpr double kFalling = 0.75;  // of the highest delay seen: somebody yields
  static constexpr int64_t kGentle = 4;     // round trips in which our own queue should have
                                            // drained
  static constexpr int64_t kYielding = 8;   // further round trips of yielding without effect
  static constexpr double kYielded = 0.5;   // of the rate: if all did, no queue would stay
  static constexpr int64_t kGone = 4;       // round trips without that delay
  static constexpr Duration kLookAgain = Duration::from_s(4);

  bool suspected_ = false;
  bool stays_ = false;
  Instant since_;
  Duration most_;
  double rate_ = 0;
  Duration sum_;
  int64_t looks_ = 0;
  Duration kept_;
  Instant kept_seen_;  // when the delay was last about kept_
  Instant until_;
};

}  // namespace pacecar
