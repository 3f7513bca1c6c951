// A plan: a TOML file that says what is compared. The tables of a run (as `pacecar sim` takes them)
// are the ground that all runs share; arms and factor values put their own keys on top of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/ab/experiment.h"
#include "bench/sim/run_spec.h"
#include "bench/sim/spec_value.h"

namespace pacecar::ab {

struct Plan {
  Experiment experiment;
  std::vector<SpecTable> specs;  // one per cell
  std::string base_dir;          // where relative names of files in the plan start
  std::string text;              // of the file
};

// `seed` replaces the plan's seeds. Every cell is checked, so that nothing fails later for what the
// plan says. Errors: kNotFound, kInvalidArgument; one sentence with file, line, cause and cure.
Result<Plan> read_plan(const std::string& path, std::optional<uint64_t> seed);
// Of a text that is no file; `name` stands for it in messages. Cells are not checked.
Result<Plan> parse_plan(std::string_view text, const std::string& name);

Result<RunSpec> run_spec(const Plan& plan, size_t run);

}  // namespace pacecar::ab
