// Runs an experiment in child processes, and writes its results: simulations several at once, real
// programs one after the other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/ab/plan.h"
#include "bench/ab/results.h"

namespace pacecar::ab {

// Called when a run has ended, and at least every 200 ms: `done` of `all` runs have ended.
using RunProgressSink = std::function<void(size_t done, size_t all)>;

struct RunSettings {
  size_t jobs = 1;                  // simulations at once
  std::vector<RunRecord> finished;  // what the folder has already
  std::string command_line;
};

// Runs those of `runs` (sorted) that `finished` does not hold with the same hash, and appends the
// record of each to the folder as it ends; drops records of `finished` that are not the plan's. A
// simulation that crashes has a record with its error. The experiment is the plan's, with what the
// programs' first output decides.
// Errors: kSystem, also for a program that fails, with the last lines of its output;
// kInvalidArgument for a metric that the programs' output does not have; kUnavailable at SIGINT or
// SIGTERM (finished runs are kept).
Result<Results> run_plan(const Plan& plan, const std::vector<size_t>& runs,
                         const RunSettings& settings, const ResultsFolder& folder,
                         const RunProgressSink& progress);

struct ProgramStep {
  size_t block = 0;
  size_t cell = 0;
};
// The order of programs' runs: a block runs every cell once, in a new random order, so that drift
// (heat, other tenants) affects all arms alike; the arms of the same factor values run one after
// the other.
std::vector<ProgramStep> program_order(const std::vector<Cell>& cells, size_t blocks,
                                       uint64_t seed);

}  // namespace pacecar::ab
