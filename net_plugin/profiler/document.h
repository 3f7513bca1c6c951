// The recorder's content at the process's state socket: the page /profile, as JSON (see README.md),
// and lines for /metrics.
#pragma once

#include <string>

#include "net_plugin/profiler/processor_time.h"
#include "net_plugin/profiler/recorder.h"

namespace pacecar::profiler {

std::string profile_document(const Recorder& recorder, const ProcessorTime& processor);

// Sums over the communicators, in Prometheus' text format; empty where there is none.
std::string profile_metrics(const Recorder& recorder);

}  // namespace pacecar::profiler
