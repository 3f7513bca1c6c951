// SerialClock: when a transmitter has sent the last bit of each packet. Rounding errors do not add
// up: the time at which it becomes free is kept as nanoseconds and a remainder in units of 1/rate
// nanoseconds. And a token bucket (Policer) that is as exact. Pure arithmetic. One thread.
#pragma once

#include <cstdint>

#include "transport/base/check.h"
#include "transport/base/units.h"

namespace pacecar {

class SerialClock {
 public:
  explicit SerialClock(Rate rate) : rate_(rate.bps()) { PACECAR_CHECK(rate_ > 0); }

  Rate rate() const { return Rate::from_bps(rate_); }
  // Rounded down: a packet that begins then begins a fraction of a nanosecond later.
  Instant free_at() const { return free_at_; }
  bool busy(Instant now) const { return now < free_at_; }

  // Sends a packet after all others, from `now` on at the earliest. Returns when its last bit is
  // sent, rounded up. `size` is below 2^31.
  Instant send(uint64_t size, Instant now) {
    if (now > free_at_) {
      free_at_ = now;
      remainder_ = 0;
    }
    if (size != last_size_) measure(size);
    remainder_ += last_remainder_;
    int64_t ns = last_ns_;
    if (remainder_ >= rate_) {
      remainder_ -= rate_;
      ++ns;
    }
    free_at_ = free_at_ + Duration::from_ns(ns);
    return free_at_ + Duration::from_ns(remainder_ > 0 ? 1 : 0);
  }

  // A packet that is being sent goes on at the old rate.
  void set_rate(Rate rate) {
    PACECAR_CHECK(rate.bps() > 0);
    if (remainder_ > 0) free_at_ = free_at_ + Duration::from_ns(1);
    *this = SerialClock(rate, free_at_);
  }

 private:
  SerialClock(Rate rate, Instant free_at) : rate_(rate.bps()), free_at_(free_at) {}

  // One division per change of size: most packets are as long as the one before.
  void measure(uint64_t size) {
    const uint64_t work = size * 8'000'000'000U;  // bits x ns/s
    last_size_ = size;
    last_ns_ = static_cast<int64_t>(work / rate_);
    last_remainder_ = work % rate_;
  }

  uint64_t rate_;
  Instant free_at_;
  uint64_t remainder_ = 0;  // below the rate
  uint64_t last_size_ = 0;
  int64_t last_ns_ = 0;
  uint64_t last_remainder_ = 0;
};

// A token bucket that drops what exceeds it, as networks that sell a rate have at their edges:
// packets pass as long as they come no faster than `rate`, but for `burst` bytes at once. Exact in
// the long run, like the transmitters.
class Policer {
 public:
  Policer(Rate rate, Bytes burst) : clock_(rate), depth_(rate.time_for(burst)) {}

  // The bucket's missing tokens are what a transmitter of its rate would still have to send.
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
