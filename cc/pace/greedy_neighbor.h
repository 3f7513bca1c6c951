// GreedyNeighbor: traffic that keeps a queue whatever we do, such as TCP's cubic or a controller
// with a higher target. Had all users of our own law yielded half of their rates, the queue would
// be gone: a queue that stands for 12 of its round trips without falling, while our rate falls to
// half, is kept by a neighbour. It is forgotten when its queue is gone, when the rate held against
// it does not arrive (a slow link does not give way), and every 4 s by the host's clock: its
// processes test again together: two that mistook each other recover. Pure; one thread.
#pragma once

#include <algorithm>

#include "transport/base/units.h"

namespace pacecar {

class GreedyNeighbor {
 public:
  // One look at the link: the `delay` beyond the empty path; whether it `stands` far beyond the
  // delay on which users of our law agree; the `window` of a measurement; the `rate` that we use;
  // whether we are `given` the rate that we may use. True when a neighbour is first recognized.
  bool look(Instant now, Duration delay, bool stands, Duration window, double rate, bool given) {
    if (kept_ > Duration()) {
      if (given) given_at_ = now;
      const bool refused = now - given_at_ > (window + kept_) * kRoundTrips;
      if (delay < kept_ / 2 || refused || now >= until_) *this = {};
      return false;
    }
    const bool begins = !stands || rate_before_ == 0;
    if (begins) rate_before_ = rate;
    if (begins || delay < most_ * 3 / 4) {  // somebody yields
      since_ = now;
      most_ = delay;
    }
    most_ = std::max(most_, delay);
    if (now - since_ < (window + delay) * kRoundTrips || rate > rate_before_ * kYielded) {
      return false;
    }
    kept_ = delay;
    given_at_ = now;
    until_ = Instant::from_ns(((now + kAgain / 4).ns() / kAgain.ns() + 1) * kAgain.ns());
    return true;
  }
  // The delay that the neighbour keeps; 0: no neighbour.
  Duration kept() const { return kept_; }

 private:
  static constexpr int64_t kRoundTrips = 12;
  static constexpr double kYielded = 0.5;  // of the rate
  static constexpr Duration kAgain = Duration::from_s(4);

  Duration kept_;
  Instant since_;           // when the queue did not stand, or fell to 3/4 of
  Duration most_;           // its longest delay
  double rate_before_ = 0;  // ours when it did not stand; 0: unknown
  Instant given_at_;
  Instant until_;
};

}  // namespace pacecar
