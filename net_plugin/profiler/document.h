// The recorder's content at the state socket: /profile as JSON (README.md), and lines for /metrics.
#pragma once

#include <string>

#include "net_plugin/profiler/recorder.h"

namespace pacecar::profiler {

// The page /profile of the process's state socket, as JSON (see README.md).
std::string profile_document(const Recorder& recorder);

// Sums over the communicators, in Prometheus' text format; empty where there is none.
std::string profile_metrics(const Recorder& recorder);

}  // namespace pacecar::profiler
