// Joins the results of one experiment that was run in several folders.
#pragma once

#include <string>
#include <vector>

#include "bench/ab/record.h"
#include "bench/ab/results_folder.h"

namespace pacecar::ab {

struct MergedResults {
  Experiment experiment;
  std::vector<RunRecord> records;  // sorted
  std::vector<size_t> missing;     // runs that no folder has
};

// Writes records, and the files beside them, into `into`. If several folders have the same run, a
// successful one counts. Errors: kNotFound and kInvalidArgument for folders that hold no results,
// or those of another experiment; kSystem.
Result<MergedResults> merge_results(const std::vector<std::string>& folders,
                                    const ResultsFolder& into);

}  // namespace pacecar::ab
