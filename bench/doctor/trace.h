// The ranks' records as a trace for Perfetto (ui.perfetto.dev) and Chrome: for each rank a row with
// its collectives, and one per channel and direction with its messages, on a common time axis.
// Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "bench/doctor/collectives.h"
#include "bench/doctor/job.h"

namespace pacecar::doctor {

// How far each member's clock is ahead of the first member's, in seconds, estimated from messages:
// no message arrives before it was sent, so the fastest message of each direction bounds the offset
// from one side. The result is the midpoint of both bounds; its error is at most half the sum of
// these two one-way times. A member without messages to or from the first, directly or through
// others, gets 0. Clocks need not be synchronized, even between processes of one host. Pure.
std::vector<double> clock_offsets(const std::vector<Member>& members);

// In the trace event format: complete events, times in microseconds. Pure.
nlohmann::json trace_of(const Job& job);

}  // namespace pacecar::doctor
