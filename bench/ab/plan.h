// A plan: a TOML file that defines a comparison (README.md). A plan with a `command` is of real
// programs, any other of simulations: its tables of a run (as `pacecar sim` takes them) are common
// to all runs. Arms and factor values set keys of these tables, or flags and environment.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/ab/experiment.h"
#include "bench/sim/run_spec.h"
#include "bench/sim/spec_value.h"

namespace pacecar::ab {

struct Command {
  std::vector<std::string> words;
  std::vector<std::string> environment;  // "NAME=value", in addition to what is inherited
};

struct Plan {
  // Of programs: its seeds number the rounds, and `shown` may be empty: the first output decides.
  Experiment experiment;
  std::string text;  // of the file; empty: there is none

  // Of simulations:
  std::vector<SpecTable> specs;  // one per cell
  std::string base_dir;          // where relative names of files in the plan start

  // Of programs:
  std::vector<Command> commands;       // one per cell
  size_t warmups = 0;                  // runs of every cell before those that count
  Duration timeout = Duration::max();  // of one run
  uint64_t order_seed = 1;             // of the order of runs

  bool of_programs() const { return experiment.kind == Experiment::Kind::kPrograms; }
};

// `seed` replaces the plan's. All cells of simulations are checked, so no run fails later. Errors:
// kNotFound, kSystem, kInvalidArgument; one sentence with file, line, cause and cure.
Result<Plan> read_plan(const std::string& path, std::optional<uint64_t> seed);
// For a text that is no file; messages call it `name`. Cells are not checked.
Result<Plan> parse_plan(std::string_view text, const std::string& name);

// A plan without arms, named after its command.
Plan program_plan(const std::vector<std::string>& command, size_t rounds);
// Adds an arm that runs `command` with the variables of `environment`: "A=1 B='two words'", which
// is split as a shell does. Errors: kInvalidArgument for what is no assignment, and for a name that
// another arm has.
Result<void> add_arm(Plan& plan, const std::vector<std::string>& command, const std::string& name,
                     const std::string& environment);

// Of simulations.
Result<RunSpec> run_spec(const Plan& plan, size_t run);

}  // namespace pacecar::ab
