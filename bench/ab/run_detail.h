// The details of a simulated run: flows, queues and rates over time, links. They become one JSON
// file per run; report_data.h has the schema ("detail"). Pure.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/sim/run_result.h"

namespace pacecar::ab {

nlohmann::json run_detail(const RunResult& run);
// To thousandths.
double rounded(double value);

// All metrics that the run has; with several jobs also those of each job alone ("fct_p99_us@bulk").
std::map<std::string, double> run_metrics(const RunResult& run);

}  // namespace pacecar::ab
