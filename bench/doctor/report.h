// The findings as text and as JSON; the ranks' records as a trace for Perfetto (ui.perfetto.dev)
// and Chrome: for each rank a row with its collectives, and one per channel and direction with its
// messages, on a common time axis. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/doctor/job.h"
#include "bench/doctor/ranks.h"
#include "bench/doctor/verdict.h"

namespace pacecar::doctor {

// How far each member's clock is ahead of the first member's, in seconds, estimated from messages:
// no message arrives before it was sent, so the fastest message of each direction bounds the offset
// from one side. The result is the midpoint of both bounds; its error is at most half the sum of
// these two one-way times. A member without messages to or from the first, directly or through
// others, gets 0. Clocks need not be synchronized, even between processes of one host. Pure.
std::vector<double> clock_offsets(const std::vector<Member>& members);

// In the trace event format: complete events, times in microseconds. Pure.
nlohmann::json trace_of(const Job& job);

// The cells of each row as one line, in columns as wide as their widest cell.
std::vector<std::string> aligned(const std::vector<std::vector<std::string>>& rows);

// A table, worst first, and the verdict.
std::string to_text(const Job& job, const std::vector<Finding>& findings, const Verdict& verdict);

// Adds the members "findings" and "verdict".
void add_conclusions(const std::vector<Finding>& findings, const Verdict& verdict,
                     nlohmann::json& document);

}  // namespace pacecar::doctor
