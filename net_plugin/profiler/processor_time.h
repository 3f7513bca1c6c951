// The processor time of the process's threads, as Linux counts it.
#pragma once

#include <cstdint>

namespace pacecar::profiler {

struct ProcessorTime {
  uint64_t run_ns = 0;
  uint64_t waited_ns = 0;  // runnable without a processor: others had it, or a limit applied
};

// Zeros if the kernel does not count (no CONFIG_SCHED_INFO).
ProcessorTime processor_time();

}  // namespace pacecar::profiler
