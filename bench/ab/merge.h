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

// Writes records, and what lies beside them, into `into`. Of a run that several folders have, one
// that ended well counts.
// Errors: kNotFound and kInvalidArgument for folders that hold no results, or those of another
// experiment; kSystem.
Result<MergedResults> merge_results(const std::vector<std::string>& folders,
                                    const ResultsFolder& into);

}  // namespace pacecar::ab
