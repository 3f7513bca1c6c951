// Joins the results of one experiment that was run in several folders.
#pragma once

#include <string>
#include <vector>

#include "bench/ab/results_folder.h"

namespace pacecar::ab {

struct MergedResults {
  Experiment experiment;
  std::vector<RunRecord> records;  // by run index
  std::vector<size_t> missing;     // runs that no folder has
};

// Writes records, and each run's detail file, into `into`. If several folders have the same run, a
// successful one counts. Errors: kNotFound for a folder without results; kInvalidArgument for
// unreadable ones, those of another experiment, or a run that it does not have; kSystem.
Result<MergedResults> merge_results(const std::vector<std::string>& folders,
                                    const ResultsFolder& into);

}  // namespace pacecar::ab
