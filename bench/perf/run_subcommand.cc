#include "bench/perf/run_subcommand.h"

#include <fmt/core.h>

namespace pacecar::perf {

int code_of(const Result<int>& returned, const Console& console,
            ExitCode (*exit_code)(const Error& error)) {
  if (returned) return *returned;
  console.error(returned.error().message);
  return exit_code(returned.error());
}

int run_with_code(CLI::App& app, int argc, char** argv, const SubcommandRules& rules,
                  const std::function<Result<int>(const Console&)>& run) {
  const auto help = parse_command_line(app, argc, argv, rules.hints);
  const Console console(rules.quiet != nullptr && *rules.quiet,
                        rules.no_color == nullptr || !*rules.no_color);
  if (!help) {
    console.error(help.error().message);
    return kExitUsage;
  }
  if (!help->empty()) {
    fmt::print("{}", *help);
    return kExitOk;
  }
  return code_of(run(console), console, rules.exit_code);
}

}  // namespace pacecar::perf
