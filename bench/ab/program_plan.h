// A plan of real programs: a TOML file with a `command`, whose arms differ in their environment.
#pragma once

#include <optional>
#include <string>

#include "bench/ab/program_runner.h"
#include "bench/sim/spec_value.h"

namespace pacecar::ab {

// Nothing for a plan of simulations. Errors: kNotFound, kInvalidArgument; one sentence with file,
// line, cause and cure.
Result<std::optional<ProgramPlan>> read_program_plan(const std::string& path);
// For a text that is no file; messages call it `name`.
Result<std::optional<ProgramPlan>> parse_program_plan(std::string_view text,
                                                      const std::string& name);

}  // namespace pacecar::ab
