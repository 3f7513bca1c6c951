// A token bucket that drops what exceeds it, as networks that sell a rate have at their edges:
// packets pass as long as they come no faster than `rate`, but for `burst` bytes at once. Exact in
// the long run, like the transmitters. Pure arithmetic. Thread rule: one thread.
#pragma once

#include "transport/base/units.h"
#include "transport/sim/serial_clock.h"

namespace pacecar {

class Policer {
 public:
  Policer(Rate rate, Bytes burst) : clock_(rate), depth_(rate.time_for(burst)) {}

  // The tokens that are missing from the bucket are what a transmitter of its rate would still have
  // to send.
  bool passes(Bytes size, Instant now) {
    const Duration missing = clock_.busy(now) ? clock_.free_at() - now : Duration();
    if (missing + clock_.rate().time_for(size) > depth_) return false;
    clock_.send(size, now);
    return true;
  }

 private:
  SerialClock clock_;
  Duration depth_;
};

}  // namespace pacecar
