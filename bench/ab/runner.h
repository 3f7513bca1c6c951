// Runs a plan's simulations in processes of their own, several at once, and keeps what they gave.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/ab/plan.h"
#include "bench/ab/record.h"
#include "bench/ab/results_folder.h"

namespace pacecar::ab {

// Called when something is done and now and then; `done` of `all` runs.
using RunProgressSink = std::function<void(size_t done, size_t all)>;

// Runs those of `runs` (sorted) that `finished` does not hold (same run, same hash), at most `jobs`
// at once, and appends each to the folder as it ends; what of `finished` is not the plan's is
// dropped. A run that crashes is a record with its error. Returns all records, sorted.
// Errors: kSystem; kUnavailable when SIGINT or SIGTERM came (what is finished is kept).
Result<std::vector<RunRecord>> run_plan(const Plan& plan, const std::vector<size_t>& runs,
                                        const std::vector<RunRecord>& finished,
                                        const ResultsFolder& folder, size_t jobs,
                                        const std::string& command_line,
                                        const RunProgressSink& progress);

}  // namespace pacecar::ab
