// GreedyNeighbor: recognizes traffic that keeps a queue whatever we do, such as TCP's cubic or a
// controller with a higher target. It is suspected when the delay is far beyond what users of our
// own law agree on, and recognized when it has stayed there for some round trips although we
// yielded half of what we had. Then the delay that it keeps is no cause to yield, until it is
// another or we look again. All processes of a host look again at the same moments, by its clock:
// users of our law that took each other for such neighbors free themselves.
//
// Pure; one thread.
#pragma once

#include <algorithm>

#include "transport/base/units.h"

namespace pacecar {

class GreedyNeighbor {
 public:
  // `delay` is beyond the empty path's, `usual` what users of our law agree on, `window` a round
  // trip, `rate` what we use. True when a neighbor has just been recognized.
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
      // Until all of it is over, what we had before the first of it counts.
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

  // The delay has stayed far beyond the usual one: all that is yielded now is to be left to others,
  // lest two users of our law take each other for such a neighbor.
  bool stays() const { return stays_; }
  // The delay that it keeps; 0: there is none.
  Duration kept() const { return kept_; }

  void forget() { *this = {}; }

 private:
  static constexpr int64_t kFarBeyond = 3;  // times what users of our law agree on
  static constexpr double kFalling = 0.75;  // of the most that was seen: somebody yields
  static constexpr int64_t kGentle = 4;     // round trips in which what is ours should have drained
  static constexpr int64_t kYielding = 8;   // round trips of yielding in vain after that
  static constexpr double kYielded = 0.5;   // of the rate: had all done so, the queue would be gone
  static constexpr int64_t kGone = 4;       // round trips without the delay that it keeps
  static constexpr Duration kLookAgain = Duration::from_s(4);

  bool suspected_ = false;
  bool stays_ = false;
  Instant since_;
  Duration most_;
  double rate_ = 0;
  Duration sum_;
  int64_t looks_ = 0;
  Duration kept_;
  Instant kept_seen_;  // when the delay was about that
  Instant until_;
};

}  // namespace pacecar
