// The monotonic clock, and the CPU time of this process.
#pragma once

#include <sys/resource.h>

#include <chrono>

#include "transport/base/units.h"

namespace pacecar::cli {

inline Instant steady_now() {
  return Instant::from_ns(std::chrono::duration_cast<std::chrono::nanoseconds>(
                              std::chrono::steady_clock::now().time_since_epoch())
                              .count());
}

inline Duration duration_of(double seconds) {
  return Duration::from_ns(static_cast<int64_t>(seconds * 1e9));
}

// User and system time of all threads of this process, engines included.
inline Duration process_cpu_time() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto span = [](const timeval& t) {
    return Duration::from_s(t.tv_sec) + Duration::from_us(t.tv_usec);
  };
  return span(usage.ru_utime) + span(usage.ru_stime);
}

}  // namespace pacecar::cli
