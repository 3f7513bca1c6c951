// The engine's clock: the only place where time is read.
#pragma once

#include <ctime>

#include "transport/base/units.h"

namespace pacecar {

inline Instant clock_now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return Instant::from_ns(int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec);
}

}  // namespace pacecar
