// The clock of tests with real devices.
#pragma once

#include <time.h>

#include "transport/base/units.h"

namespace pacecar::test {

inline Instant monotonic_now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Instant::from_ns(t.tv_sec * 1'000'000'000 + t.tv_nsec);
}

}  // namespace pacecar::test
