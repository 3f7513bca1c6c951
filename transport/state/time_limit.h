// A time limit for poll(2).
#pragma once

#include <algorithm>
#include <chrono>

#include "transport/base/units.h"

namespace pacecar {

class TimeLimit {
 public:
  explicit TimeLimit(Duration limit) : end_(Clock::now() + std::chrono::nanoseconds(limit.ns())) {}

  // 0 when it is over.
  int left_ms() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
  }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point end_;
};

}  // namespace pacecar
