// Experiments with real programs: a command whose arms differ in environment and flags. Runs come
// one after the other. A block runs every cell once, in a new random order, so that drift (heat,
// other tenants) affects all arms alike; the arms of the same factor values run one after the
// other. Samples are paired by block.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/ab/experiment.h"
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
  size_t warmups = 0;                       // runs of every arm before those that count
  Duration timeout = Duration::max();       // of one run
  uint64_t seed = 1;                        // of the order
  std::optional<double> min_improvement;  // threshold: by so many percent better than the baseline
};

// Nothing for a plan of simulations. Errors: kNotFound, kSystem, kInvalidArgument; one sentence
// with file, line, cause and cure. `name` stands for the file in messages.
Result<std::optional<ProgramPlan>> parse_program_plan(std::string_view text,
                                                      const std::string& name);
Result<std::optional<ProgramPlan>> read_program_plan(const std::string& path);

// A plan without arms, named after its command.
ProgramPlan program_plan(const std::vector<std::string>& command, size_t rounds);
// Adds an arm that runs `command` with the variables of `environment`: "A=1 B='two words'", which
// is split as a shell does. Errors: kInvalidArgument for what is no assignment, and for a name that
// another arm has.
Result<void> add_arm(ProgramPlan& plan, const std::vector<std::string>& command,
                     const std::string& name, const std::string& environment);

struct ProgramStep {
  size_t block = 0;
  size_t cell = 0;
};
// The order of all runs except warm-ups.
std::vector<ProgramStep> program_order(const std::vector<Cell>& cells, size_t blocks,
                                       uint64_t seed);

struct ProgramResults {
  Experiment experiment;
  std::vector<RunRecord> records;
};
// Writes each run's record and output into the folder. Errors: kSystem for a command that fails,
// with the last lines of its output; kInvalidArgument for a metric that the output does not have;
// kUnavailable when interrupted.
Result<ProgramResults> run_programs(const ProgramPlan& plan, const ResultsFolder& folder,
                                    const std::string& command_line,
                                    const RunProgressSink& progress);

}  // namespace pacecar::ab
