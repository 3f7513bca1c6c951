// BurstUse: how much came in one piece at no less than a given rate, whatever was before and after.
// An application that sends in bursts and waits in between uses a rate although it does not fill
// it: the pauses are neither use nor the lack of it.
//
// What comes faster than the rate waits in a queue that drains at the rate; a burst lasts until
// that is empty. Times are those at which bytes would have come without delay, so that what a host
// takes late and at once is no burst. Pure; one thread.
#pragma once

#include <algorithm>

#include "transport/base/units.h"

namespace pacecar {

class BurstUse {
 public:
  void on_bytes(Instant at, Bytes bytes, double bps) {
    waiting_ -= std::max(at - last_, Duration()).seconds() * bps / 8;
    last_ = std::max(last_, at);
    if (waiting_ <= 0) forget();
    waiting_ += static_cast<double>(bytes);
    bytes_ += bytes;
  }
  void forget() {
    waiting_ = 0;
    bytes_ = 0;
  }

  // Of the present burst.
  Bytes bytes() const { return bytes_; }

 private:
  Instant last_;
  double waiting_ = 0;
  Bytes bytes_ = 0;
};

}  // namespace pacecar
