// A time limit.
#pragma once

#include <algorithm>
#include <ctime>

#include "transport/base/units.h"

namespace pacecar {

class TimeLimit {
 public:
  explicit TimeLimit(Duration limit) : end_(now() + limit) {}

  // For poll(2): 0 when it is over.
  int left_ms() const {
    const int64_t left = (end_ - now()).ns();
    return left <= 0 ? 0
                     : static_cast<int>(std::min<int64_t>((left + 999'999) / 1'000'000, 1 << 30));
  }

 private:
  static Instant now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return Instant::from_ns(int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec);
  }

  Instant end_;
};

}  // namespace pacecar
