// Makes summary, report and verdict of records.
#pragma once

#include <vector>

#include "bench/ab/experiment.h"
#include "bench/ab/record.h"
#include "bench/ab/results_folder.h"

namespace pacecar::ab {

// Exit codes of `pacecar ab`.
enum ExitCode : int {
  kPassed = 0,
  kThresholdMissed = 1,
  kError = 2,  // a wrong flag or plan, a run that failed, a file that cannot be written
};

// Writes experiment.json, summary.csv, summary.json and report.html, and prints the summary on
// stdout. Errors: kSystem.
Result<ExitCode> conclude(const Experiment& experiment, const std::vector<RunRecord>& records,
                          const ResultsFolder& folder, bool color);

}  // namespace pacecar::ab
