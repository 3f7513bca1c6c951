// CLI11 for every subcommand: its errors and its help as values, and the checks that flags share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "transport/base/result.h"

namespace pacecar::perf {

// The text of --help after the flags of every subcommand.
inline constexpr const char* kExitCodesHelp =
    "Exit codes: 0 success, 1 failed, 2 wrong usage, 3 a threshold was missed.";

struct ParseHints {
  // What to say of a flag that the subcommand does not have; empty: nothing in particular.
  std::string (*unknown_flag)(std::string_view name) = nullptr;
  // The subcommand reads FILE.json itself: --json takes one after '=' only.
  bool reads_json = false;
};

// Fills what the flags of `app` are bound to. Returns --help's text when it was asked for (or the
// table of flags as JSON, for --describe), else an empty string. Errors: kInvalidArgument, one
// sentence; of a flag that is not known it names the nearest.
Result<std::string> parse_command_line(CLI::App& app, int argc, const char* const* argv,
                                       const ParseHints& hints = {});

inline constexpr std::string_view kJsonFlag = "--json";
// `--json [FILE.json]`, the same for every subcommand: the name of the file, or kStandardOutput;
// empty where the flag is not given. `what`: "write all figures".
void add_json_flag(CLI::App& app, std::string& file, const std::string& what);

// Checks of a flag's value.
CLI::Validator whole_number(uint64_t min, uint64_t max);
// As whole_number, with a suffix K, M or G for powers of 1024.
CLI::Validator byte_count(uint64_t min, uint64_t max);
CLI::Validator positive_number(double max);

}  // namespace pacecar::perf
