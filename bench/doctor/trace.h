// The ranks' records as a trace for Perfetto (ui.perfetto.dev) and Chrome: for each rank a row with
// its collectives, and one per channel and direction with its messages, on a common time axis.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "bench/doctor/job.h"

namespace pacecar::doctor {

// In the trace event format: complete events, times in microseconds. Pure.
nlohmann::json trace_of(const Job& job);

}  // namespace pacecar::doctor
