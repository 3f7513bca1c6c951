// The ranks' records as a trace for Perfetto (ui.perfetto.dev) and Chrome: for each rank a row with
// its collectives, and one per channel and direction with its messages, on a common time axis.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "bench/doctor/collectives.h"
#include "bench/doctor/job.h"

namespace pacecar::doctor {

// The offsets between the clocks of ranks, estimated from their messages: no message arrives before
// it was sent. Clocks need not be synchronized, and processes of one host need not share a clock.
// Pure.

// Clock offset of each member relative to the first, in seconds; positive: ahead. Each direction's
// fastest message bounds the offset from one side. The result is the midpoint of both bounds. Its
// error is at most half the sum of these two one-way times. A member without messages to or from
// the first, directly or through others, gets 0.
std::vector<double> clock_offsets(const std::vector<Member>& members);

// In the trace event format: complete events, times in microseconds. Pure.
nlohmann::json trace_of(const Job& job);

}  // namespace pacecar::doctor
