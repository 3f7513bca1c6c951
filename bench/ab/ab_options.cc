#include "bench/ab/ab_options.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "bench/cli/command_line.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

constexpr uint64_t kMaxJobs = 4096;
constexpr uint64_t kMaxReps = 100'000;
constexpr double kMaxTimeoutSeconds = 1e6;

constexpr const char* kPlanExamples =
    "Real programs:  pacecar ab --a 'PACECAR_CC=swift' --b 'PACECAR_CC=fixed' --reps 10 -- "
    "COMMAND\n"
    "                (several: --arm NAME='ENV'; the first is the baseline)\n"
    "Exit codes: 0 success, 1 a run failed, or a result could not be written, 2 wrong usage, 3 a\n"
    "threshold was missed, or flows were not done at the time limit.";

void add_plan_flags(CLI::App& app, AbOptions& options) {
  app.add_option("plan", options.plan, "the plan, a TOML file");
  app.add_option("--out", options.out, "folder for the results (default: NAME.results)");
  app.add_option("--filter", options.filters,
                 "only these runs: arm=NAME, FACTOR=VALUE, seed=N; * and ? stand for any letters; "
                 "all of several must hold")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--jobs", options.jobs, "runs at once (default: one per processor)")
      ->check(cli::whole_number(1, kMaxJobs));
  app.add_flag("--list", options.list, "list the runs, and run nothing");
  app.add_flag("--resume", options.resume, "keep what is finished in the folder, run the rest");
  app.add_flag("--force", options.force, "replace the results in that folder");
  app.add_flag("--dry-run", options.dry_run, "check every run's spec, and run nothing");
  app.add_option("--seed", options.seed,
                 "instead of the plan's seeds; of programs: of their order (default: 1)")
      ->check(cli::whole_number(0, INT64_MAX));
  cli::add_console_flags(app, options.console);
  app.footer(kPlanExamples);
}

constexpr const char* kProgramGroup = "Real programs";

void add_program_flags(CLI::App& app, AbOptions& options) {
  Plan& programs = options.programs;
  app.option_defaults()->group(kProgramGroup);
  app.add_option("--a", options.a, "environment of the baseline");
  app.add_option("--b", options.b, "environment of the other arm");
  app.add_option("--arm", options.arms, "NAME='ENV': one more arm");
  app.add_option("--reps", options.reps, "runs of each arm (default: 10)")
      ->check(cli::whole_number(1, kMaxReps));
  app.add_option("--warmup", programs.warmups, "runs of each arm before, that do not count")
      ->check(cli::whole_number(0, kMaxReps));
  app.add_option("--timeout", options.timeout, "seconds that one run may take (default: no limit)")
      ->check(cli::positive_number(kMaxTimeoutSeconds));
  app.add_option("--metric", programs.experiment.shown,
                 "what to compare (default: what the output is known for, else wall_s)")
      ->allow_extra_args(false);
  app.option_defaults()->group("Options");
}

Result<void> read_arms(const AbOptions& options, Plan& programs) {
  for (const auto& [name, environment] : {std::pair("a", &options.a), std::pair("b", &options.b)}) {
    if (!*environment) continue;
    const std::string& text = **environment;
    RETURN_IF_ERROR(add_arm(programs, options.command, text.empty() ? name : text, text));
  }
  for (const std::string& arm : options.arms) {
    const size_t equals = arm.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return invalid("--arm {} has no name: write --arm NAME='VARIABLE=value'", arm);
    }
    RETURN_IF_ERROR(
        add_arm(programs, options.command, arm.substr(0, equals), arm.substr(equals + 1)));
  }
  if (programs.commands.size() >= 2) return {};
  return invalid(
      "a comparison needs two arms: give --a 'ENV' and --b 'ENV', or --arm NAME='ENV' for each");
}

Result<void> read_programs(AbOptions& options) {
  Plan& programs = options.programs;
  Experiment& experiment = programs.experiment;
  auto shown = std::move(experiment.shown);
  experiment = program_plan(options.command, options.reps).experiment;
  experiment.shown = std::move(shown);
  RETURN_IF_ERROR(read_arms(options, programs));
  if (!options.plan.empty() || options.list || options.dry_run || options.resume ||
      !options.filters.empty()) {
    return invalid(
        "PLAN, --list, --dry-run, --filter and --resume are for simulations: leave them out with "
        "'-- COMMAND'");
  }
  if (options.jobs && *options.jobs > 1) {
    return invalid(
        "programs run one at a time, so that they do not disturb each other: leave out --jobs");
  }
  programs.order_seed = options.seed.value_or(1);
  if (options.timeout) {
    programs.timeout = Duration::from_ns(static_cast<int64_t>(*options.timeout * 1e9));
  }
  return {};
}

Result<void> judge(const CLI::App& app, AbOptions& options) {
  if (options.resume && options.force) {
    return invalid("--resume keeps what --force replaces: give one of them");
  }
  if (options.of_programs) return read_programs(options);
  for (const CLI::Option* flag : app.get_options()) {
    if (flag->get_group() != kProgramGroup || flag->count() == 0) continue;
    return invalid("{} is for real programs: end the command line with '-- COMMAND'",
                   flag->get_name());
  }
  if (!options.plan.empty()) return {};
  return invalid("no plan: give its TOML file, or a command behind '--' (see 'pacecar ab --help')");
}

}  // namespace

Result<AbOptions> parse_ab_options(int argc, const char* const* argv) {
  AbOptions options;
  // After "--" follows another command, whose flags are not ours.
  const char* const* end = argv + argc;
  const char* const* dashes = std::find(argv, end, std::string_view("--"));
  if (dashes != end) {
    options.of_programs = true;
    options.command.assign(dashes + 1, end);
    if (options.command.empty()) return invalid("no command behind '--': write what to run there");
  }
  CLI::App app("Compares arms of an experiment: simulations of a plan, or real programs.",
               "pacecar ab");
  add_plan_flags(app, options);
  add_program_flags(app, options);
  ASSIGN_OR_RETURN(options.help,
                   cli::parse_command_line(app, static_cast<int>(dashes - argv), argv));
  if (!options.help.empty()) return options;
  RETURN_IF_ERROR(judge(app, options));
  return options;
}

}  // namespace pacecar::ab
