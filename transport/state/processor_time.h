// The processor time of this process's threads, as Linux counts it. Thread rule: any.
#pragma once

#include <cstdint>

namespace pacecar {

struct ProcessorTime {
  uint64_t run_ns = 0;
  uint64_t waited_ns = 0;  // runnable without a processor: busy with others, or a quota applied
};

ProcessorTime processor_time();  // Zeros if the kernel does not count (no CONFIG_SCHED_INFO).

}  // namespace pacecar
