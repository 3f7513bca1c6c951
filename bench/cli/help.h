// What a subcommand says of its flags: to a person, and as JSON.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace pacecar::cli {

enum class Shown { kFirst, kAll };

// The text for --help (the six flags that were added first: declare those that people need in
// front) or --help-all.
std::string help_of(const CLI::App& app, Shown shown);

// The listed flags as JSON, from which manual pages and completions are made (deploy/manual):
// {"name", "summary", "footer", "flags": [...], "operands": [...]}; each of these has "names",
// "value" (empty: it takes none), "accepts", "choices", "default", "several" and "help".
std::string describe(const CLI::App& app);

}  // namespace pacecar::cli
