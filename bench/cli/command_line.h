// What every subcommand shares: from its arguments to its exit code, with CLI11's errors and help
// as values, the flags that several have, and checks of flags' values.
#pragma once

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "bench/cli/console.h"
#include "transport/base/result.h"

namespace pacecar::cli {

// The exit codes of the subcommands, as --help documents them.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,           // the peer, the network or the machine; preflight found an error
  kExitUsage = 2,            // an invalid flag or parameter
  kExitThresholdMissed = 3,  // the result is worse than --min-gbits or --max-usec asks;
                             // preflight found warnings, but no error
};

// kInvalidArgument of the library means that a flag or parameter was wrong.
inline ExitCode exit_code_of(const Error& error) {
  return error.code == ErrorCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

// The text of --help after the flags of every subcommand.
inline constexpr const char* kExitCodesHelp =
    "Exit codes: 0 success, 1 failed, 2 wrong usage, 3 a threshold was missed.";

struct ParseHints {
  // The error for a flag that the subcommand does not have; empty: the usual one.
  std::string (*unknown_flag)(std::string_view name) = nullptr;
  // The subcommand has operands FILE.json, so the file of --json is given after '=' only.
  bool reads_json = false;
};

// The group of flags that work and are not listed: the flags of every subcommand, old names, and
// other programs' names for ours.
inline constexpr const char* kSilent = "Silent";

// Fills the variables that the flags of `app` are bound to. Returns the text for --help, --help-all
// or --version (or the table of flags as JSON, for --describe), else an empty string. Errors:
// kInvalidArgument, one sentence; for an unknown flag it names the nearest one.
Result<std::string> parse_command_line(CLI::App& app, int argc, const char* const* argv,
                                       const ParseHints& hints = {});

// The word, quoted for a POSIX shell if it has special characters; words so quoted, with a blank
// between them.
std::string shell_quoted(const std::string& word);
std::string shell_line(std::span<const std::string> words);
// Splits a line into words as a shell does, with quotes and backslashes, but no expansions. Errors:
// kInvalidArgument (a quote without end).
Result<std::vector<std::string>> shell_words(const std::string& line);

inline constexpr std::string_view kJsonFlag = "--json";
// Adds `--json[=FILE]` (also `--json FILE.json`, where no operand may be meant), the same for every
// subcommand. `file` becomes the name of the file, or kStandardOutput; it stays empty without the
// flag. `what`: "write all figures".
void add_json_flag(CLI::App& app, std::string& file, const std::string& what);

// Checks of a flag's value.
CLI::Validator whole_number(uint64_t min, uint64_t max);
// As whole_number, with a suffix K, M or G for powers of 1024.
CLI::Validator byte_count(uint64_t min, uint64_t max);
CLI::Validator positive_number(double max);
// A transform. As positive_number, also with the unit: 5s.
CLI::Validator seconds(double max);

// The flags with which a subcommand runs on other hosts (bench/hosts).
struct HostsFlags {
  std::string hosts;  // as written; empty: this host
  std::string launch = "ssh";
  std::string remote = "pacecar";
  double reach_s = 30;

  bool given() const { return !hosts.empty(); }
};

// `what`: "measure between these hosts". Returns --hosts, which others may need.
CLI::Option* add_hosts_flags(CLI::App& app, HostsFlags& flags, const std::string& what);

// The flags that the command line has, with their values, but without operands, flags that are not
// passed on to other hosts, and `omitted` ("--html"): arguments for the same subcommand there.
std::vector<std::string> given_flags(const CLI::App& app,
                                     const std::vector<std::string_view>& omitted = {});

// The exit code of what a subcommand returned; prints an error as one sentence.
int code_of(const Result<int>& returned, const Console& console,
            ExitCode (*exit_code)(const Error& error) = exit_code_of);

// The flags of the messages' form, the same for every subcommand; 'pacecar --help' documents them.
struct ConsoleFlags {
  bool quiet = false;
  bool no_color = false;  // as NO_COLOR
};
void add_console_flags(CLI::App& app, ConsoleFlags& flags);

struct SubcommandRules {
  ParseHints hints = {};
  // For errors of `run`; a wrong command line is kExitUsage.
  ExitCode (*exit_code)(const Error& error) = exit_code_of;
};

// As run_subcommand below, for what returns an exit code.
int run_with_code(CLI::App& app, int argc, char** argv, const SubcommandRules& rules,
                  const std::function<Result<int>(const Console&)>& run);

// Parses the command line, prints the text for --help, or calls `run` with the console and prints
// its error. `run` returns Result<int>, an exit code, or Result<void>.
template <typename Run>
int run_subcommand(CLI::App& app, int argc, char** argv, const SubcommandRules& rules, Run run) {
  return run_with_code(app, argc, argv, rules, [&run](const Console& console) -> Result<int> {
    if constexpr (std::is_same_v<decltype(run(console)), Result<void>>) {
      return run(console).map([] { return int{kExitOk}; });
    } else {
      return run(console);
    }
  });
}

}  // namespace pacecar::cli
