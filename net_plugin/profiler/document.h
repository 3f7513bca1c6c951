// The recorder's content at the process's state socket: the page /profile, as JSON (see README.md),
// and lines for /metrics.
#pragma once

#include <cstdint>
#include <string>

#include "net_plugin/profiler/recorder.h"

namespace pacecar::profiler {

// The processor time of the process's threads, as Linux counts it.
struct ProcessorTime {
  uint64_t run_ns = 0;
  uint64_t waited_ns = 0;  // runnable without a processor: busy with others, or a quota applied
};

// Zeros if the kernel does not count (no CONFIG_SCHED_INFO).
ProcessorTime processor_time();

// The page /profile of the process's state socket, as JSON (see README.md).
std::string profile_document(const Recorder& recorder, const ProcessorTime& processor);

// Sums over the communicators, in Prometheus' text format; empty where there is none.
std::string profile_metrics(const Recorder& recorder);

}  // namespace pacecar::profiler
