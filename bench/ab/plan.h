// A plan: a TOML file that defines a comparison. Its tables of a run (as `pacecar sim` takes them)
// are common to all runs; arms and factor values override keys of them.
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

// `seed` replaces the plan's seeds. Every cell is checked, so that no run fails later because of
// the plan. Errors: kNotFound, kSystem, kInvalidArgument; one sentence with file, line, cause and
// cure.
Result<Plan> read_plan(const std::string& path, std::optional<uint64_t> seed);
// For a text that is no file; messages call it `name`. Cells are not checked.
Result<Plan> parse_plan(std::string_view text, const std::string& name);

Result<RunSpec> run_spec(const Plan& plan, size_t run);

}  // namespace pacecar::ab
