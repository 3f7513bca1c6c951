// CLI11 for every subcommand: its errors and its help as values, and checks of flags' values.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <span>
#include <string>

#include "transport/base/result.h"

namespace pacecar::perf {

// The text of --help after the flags of every subcommand.
inline constexpr const char* kExitCodesHelp =
    "Exit codes: 0 success, 1 failed, 2 wrong usage, 3 a threshold was missed.";

struct ParseHints {
  // The error for a flag that the subcommand does not have; empty: the usual one.
  std::string (*unknown_flag)(std::string_view name) = nullptr;
  // The subcommand has operands FILE.json, so the file of --json is given after '=' only.
  bool reads_json = false;
};

// Fills the variables that the flags of `app` are bound to. Returns the text for --help (or the
// table of flags as JSON, for --describe), else an empty string. Errors: kInvalidArgument, one
// sentence; for an unknown flag it names the nearest one.
Result<std::string> parse_command_line(CLI::App& app, int argc, const char* const* argv,
                                       const ParseHints& hints = {});

// " (did you mean 'bw'?)" if one of `known` is at most two letters away from `name`; else empty.
std::string nearest_hint(std::string_view name, std::span<const std::string> known);

inline constexpr std::string_view kJsonFlag = "--json";
// Adds `--json [FILE.json]`, the same for every subcommand. `file` becomes the name of the file, or
// kStandardOutput; it stays empty without the flag. `what`: "write all figures".
void add_json_flag(CLI::App& app, std::string& file, const std::string& what);

// Checks of a flag's value.
CLI::Validator whole_number(uint64_t min, uint64_t max);
// As whole_number, with a suffix K, M or G for powers of 1024.
CLI::Validator byte_count(uint64_t min, uint64_t max);
CLI::Validator positive_number(double max);

}  // namespace pacecar::perf
