// The table of a subcommand's flags as JSON, from which manual pages and completions are made
// (deploy/manual): 'pacecar SUBCOMMAND --describe'.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace pacecar::perf {

// {"name", "summary", "footer", "flags": [...], "operands": [...]}; each of these has "names",
// "value" (empty: it takes none), "accepts", "choices", "default", "several" and "help".
std::string describe(const CLI::App& app);

}  // namespace pacecar::perf
