// From a subcommand's arguments to its exit code, the same for all subcommands.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <optional>
#include <type_traits>

#include "bench/perf/command_line.h"
#include "bench/perf/console.h"
#include "bench/perf/exit_code.h"

namespace pacecar::perf {

// The exit code of what a subcommand returned; prints an error as one sentence.
int code_of(const Result<int>& returned, const Console& console,
            ExitCode (*exit_code)(const Error& error) = exit_code_of);

// The exit code if the command line is wrong, or asks for help; prints the error or the help.
// `Parsed` has a member `help`.
template <typename Parsed>
std::optional<int> code_of_words(const Result<Parsed>& parsed) {
  if (!parsed) {
    return code_of(tl::unexpected(parsed.error()), Console(false, true),
                   [](const Error&) { return kExitUsage; });
  }
  if (parsed->help.empty()) return std::nullopt;
  fmt::print("{}", parsed->help);
  return kExitOk;
}

struct SubcommandRules {
  // Bound to --quiet and --no-color; null: there is no such flag.
  const bool* quiet = nullptr;
  const bool* no_color = nullptr;
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
    const auto done = run(console);
    if (!done) return tl::unexpected(done.error());
    if constexpr (std::is_void_v<typename decltype(done)::value_type>) {
      return kExitOk;
    } else {
      return *done;
    }
  });
}

}  // namespace pacecar::perf
