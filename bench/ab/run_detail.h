// The details of a simulated run beside its metrics: flows, queues and rates over time, links.
// Written as one JSON file per run; report_data.h has the schema (there "detail").
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/sim/run_result.h"

namespace pacecar::ab {

nlohmann::json run_detail(const RunResult& run);
// To thousandths, which is all that a plot shows.
double rounded(double value);

// All metrics that the run has; with several jobs also those of each job alone ("fct_p99_us@bulk").
std::map<std::string, double> run_metrics(const RunResult& run);

}  // namespace pacecar::ab
