// The runs of an experiment as jobs of other schedulers: Slurm job arrays, or a file of commands
// for GNU parallel. Each job is one run in its own folder; `pacecar ab merge` joins them.
// And a script that makes the results again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/ab/results.h"

namespace pacecar::ab {

struct EmitPlan {
  std::string program;       // the path of `pacecar`
  std::string plan;          // the path of the plan's file
  std::string name;          // of the experiment
  std::vector<size_t> runs;  // sorted, not empty
  std::optional<uint64_t> seed;
  std::optional<size_t> jobs;  // at once, of each array; none: as many as the scheduler allows
};

// "0-4,7". `runs` is sorted.
std::string index_ranges(const std::vector<size_t>& runs);

// Each writes its file into the folder and returns the commands to enter next.
// Errors: kSystem.
Result<std::string> emit_slurm(const EmitPlan& plan, const ResultsFolder& folder);
Result<std::string> emit_parallel(const EmitPlan& plan, const ResultsFolder& folder);

// Writes repro.sh, a script that makes the results again. `argv` ("ab", ...) is the command line;
// it ran in `folder` with `plan` (a path, or empty for programs). Errors: kSystem.
Result<void> write_repro(const ResultsFolder& results, const std::vector<std::string>& argv,
                         const std::string& folder, const std::string& plan);

}  // namespace pacecar::ab
