// Runs a plan's simulations in child processes, several at once, and writes their results.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/ab/plan.h"
#include "bench/ab/results_folder.h"

namespace pacecar::ab {

// Called when a run has ended, and at least every 200 ms: `done` of `all` runs have ended.
using RunProgressSink = std::function<void(size_t done, size_t all)>;

// Runs those of `runs` (sorted) that `finished` does not hold with the same hash, at most `jobs` at
// once, and appends the record of each to the folder as it ends; drops records of `finished` that
// are not the plan's. A run that crashes has a record with its error. Returns all records, sorted.
// Errors: kSystem; kUnavailable at SIGINT or SIGTERM (finished runs are kept).
Result<std::vector<RunRecord>> run_plan(const Plan& plan, const std::vector<size_t>& runs,
                                        const std::vector<RunRecord>& finished,
                                        const ResultsFolder& folder, size_t jobs,
                                        const std::string& command_line,
                                        const RunProgressSink& progress);

}  // namespace pacecar::ab
