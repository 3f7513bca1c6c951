// What ranks have recorded, as a trace for Perfetto (ui.perfetto.dev) and Chrome: a row of each
// rank with its collectives, one per channel and direction with the messages, on one time axis.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "bench/doctor/job.h"

namespace pacecar::doctor {

// In the trace event format: complete events, times in microseconds. Pure.
nlohmann::json trace_of(const Job& job);

}  // namespace pacecar::doctor
