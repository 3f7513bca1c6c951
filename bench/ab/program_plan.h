// Plans of real programs: a command whose arms differ in environment and flags. They come from a
// TOML file with a `command`, or from the flags --a, --b and --arm.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/ab/program_runner.h"

namespace pacecar::ab {

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

}  // namespace pacecar::ab
