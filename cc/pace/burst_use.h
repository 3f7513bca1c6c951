// BurstUse: the bytes of the current busy period: of a virtual queue that takes the arrivals and
// drains at a given rate. An application that sends in bursts with pauses between them uses a rate
// without filling it; the pauses prove neither use nor lack of use. Times are arrivals less their
// delay, so that bytes that a late host takes at once are no burst. Pure; one thread.
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

  // Of the present busy period.
  Bytes bytes() const { return bytes_; }

 private:
  Instant last_;
  double waiting_ = 0;
  Bytes bytes_ = 0;
};

}  // namespace pacecar
