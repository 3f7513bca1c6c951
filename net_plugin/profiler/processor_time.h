// What the process's threads have had of the processors, as Linux counts it.
#pragma once

#include <cstdint>

namespace pacecar::profiler {

struct ProcessorTime {
  uint64_t run_ns = 0;
  uint64_t waited_ns = 0;  // ready to run, and not let: others had the processor, or a limit
};

// All zeros where the kernel does not tell (no CONFIG_SCHED_INFO).
ProcessorTime processor_time();

}  // namespace pacecar::profiler
