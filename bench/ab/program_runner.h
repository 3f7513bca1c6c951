// Compares settings of real programs: one command, several environments, run in turn on one
// machine.
//
// Blocks: each holds every cell once, in an order drawn anew, so that what drifts (heat, other
// tenants) hits all arms alike; the arms of the same factor values run one after the other. Samples
// are paired by block.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/ab/experiment.h"
#include "bench/ab/record.h"
#include "bench/ab/results_folder.h"
#include "bench/ab/runner.h"

namespace pacecar::ab {

struct ProgramCommand {
  std::vector<std::string> words;
  std::vector<std::string> environment;  // "NAME=value", in addition to what is inherited
};

struct ProgramPlan {
  // Its seeds number the blocks. Its `shown` may be empty: then the first output decides.
  Experiment experiment;
  std::vector<ProgramCommand> commands;     // one per cell
  std::optional<std::vector<size_t>> runs;  // as Experiment numbers them; none: all
  size_t warmups = 0;                       // runs of every arm that do not count
  Duration timeout = Duration::max();       // of one run
  uint64_t seed = 1;                        // of the order
  std::optional<double> min_improvement;  // threshold: by so many percent better than the baseline
};

struct ProgramStep {
  size_t block = 0;
  size_t cell = 0;
};
// The order of all runs that count.
std::vector<ProgramStep> program_order(const std::vector<Cell>& cells, size_t blocks,
                                       uint64_t seed);

struct ProgramResults {
  Experiment experiment;
  std::vector<RunRecord> records;
};
// Keeps each run's record and output in the folder. Errors: kSystem for a command that fails, with
// its last lines; kInvalidArgument for a metric that the output does not have; kUnavailable when
// interrupted.
Result<ProgramResults> run_programs(const ProgramPlan& plan, const ResultsFolder& folder,
                                    const std::string& command_line,
                                    const RunProgressSink& progress);

}  // namespace pacecar::ab
