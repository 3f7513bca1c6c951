// `pacecar ab`: compares arms of an experiment, simulated or real.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/ab/experiment.h"
#include "bench/ab/plan.h"
#include "bench/ab/report/report.h"
#include "bench/ab/report_data.h"
#include "bench/ab/results.h"
#include "bench/ab/runner.h"
#include "bench/ab/summary.h"
#include "bench/cli/command_line.h"
#include "bench/cli/console.h"
#include "bench/cli/subcommands.h"
#include "bench/sim/summary.h"
#include "transport/base/invalid.h"
#include "transport/base/params.h"
#include "transport/base/result.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

using cli::ExitCode;

struct AbOptions {
  bool of_programs = false;  // a command behind "--", no plan

  // Of a plan:
  std::string plan;  // its path
  std::vector<std::string> filters;
  std::optional<uint64_t> seed;
  std::optional<size_t> jobs;
  bool list = false;
  bool dry_run = false;

  // Of programs:
  Plan programs;
  std::vector<std::string> command;  // behind "--"
  std::optional<std::string> a;
  std::optional<std::string> b;
  std::vector<std::string> arms;
  uint64_t reps = 10;
  std::optional<double> timeout;

  std::string out;  // empty: from the plan's name
  bool resume = false;
  bool force = false;
};

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
  if (options.command.empty()) return invalid("no command behind '--': write what to run there");
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

// Draws how far the runs are, as long as it exists.
RunProgressSink progress_bar(const cli::Console& console) {
  const auto bar = std::make_shared<cli::ProgressBar>(console.interactive());
  return [bar](size_t done, size_t all) {
    if (all != 0) bar->show(done, all, "runs");
  };
}

// That this process may use.
size_t processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return static_cast<size_t>(std::max(CPU_COUNT(&set), 1));
}

// Sentences: unknown parameters of programs, and what in a spec spoils its runs. The runs' own
// outputs, which say so too, are seen by nobody.
Result<std::set<std::string>> plan_warnings(const Plan& plan) {
  std::vector<ParamSetting> settings;
  for (const Command& command : plan.commands) {
    for (const std::string& variable : command.environment) {
      if (!variable.starts_with("PACECAR_")) continue;
      settings.push_back({variable.substr(0, variable.find('=')), {}, "environment of an arm"});
    }
  }
  std::vector<std::string> warnings;
  // The values are the programs' business.
  static_cast<void>(load_params(settings, &warnings));
  for (size_t cell = 0; cell < plan.specs.size(); ++cell) {
    ASSIGN_OR_RETURN(const auto spec, run_spec(plan, cell * plan.experiment.seeds.size()));
    std::ranges::move(pacecar::warnings(spec), std::back_inserter(warnings));
  }
  return std::set<std::string>(warnings.begin(), warnings.end());
}

class AbCommand {
 public:
  AbCommand(const AbOptions& options, const std::vector<std::string>& argv,
            const cli::Console& console)
      : options_(options), command_line_("pacecar " + cli::shell_line(argv)), console_(console) {}

  Result<ExitCode> run() {
    ASSIGN_OR_RETURN(const auto plan, options_.of_programs
                                          ? Result<Plan>(options_.programs)
                                          : read_plan(options_.plan, options_.seed));
    if (plan.of_programs() && (options_.resume || options_.jobs.value_or(1) > 1)) {
      return invalid(
          "--resume and --jobs are for simulations: leave them out with a plan that has a command");
    }
    ASSIGN_OR_RETURN(const auto warnings, plan_warnings(plan));
    for (const std::string& warning : warnings) console_.warn(warning);
    ASSIGN_OR_RETURN(const auto runs, filter_runs(plan.experiment, options_.filters));
    return options_.list || options_.dry_run ? list(plan.experiment, runs) : run_these(plan, runs);
  }

  // An error before is of the command line or of the plan.
  bool running() const { return running_; }

 private:
  Result<ExitCode> list(const Experiment& experiment, const std::vector<size_t>& runs) {
    for (const size_t run : runs) {
      fmt::print("{:>6}  {}, seed {}\n", run, cell_text(experiment, experiment.cell_of(run)),
                 experiment.seed_of(run));
    }
    if (options_.dry_run) {
      fmt::print("{} runs, {} arms, {} thresholds: the plan is sound, nothing was run\n",
                 runs.size(), experiment.arms.size(), experiment.thresholds.size());
    }
    return cli::kExitOk;
  }

  Result<ExitCode> run_these(const Plan& plan, const std::vector<size_t>& runs) {
    running_ = true;
    ASSIGN_OR_RETURN(const auto folder, open_folder(plan.experiment.name));
    ASSIGN_OR_RETURN(auto finished, folder.read_records());
    if (!plan.text.empty()) RETURN_IF_ERROR(folder.write("plan.toml", plan.text));
    ASSIGN_OR_RETURN(const auto results, run_plan(plan, runs,
                                                  {.jobs = options_.jobs.value_or(processors()),
                                                   .finished = std::move(finished),
                                                   .command_line = command_line_},
                                                  folder, progress_bar(console_)));
    return conclude(folder, results);
  }

  Result<ResultsFolder> open_folder(const std::string& name) const {
    using Existing = ResultsFolder::Existing;
    const Existing existing = options_.resume  ? Existing::kResume
                              : options_.force ? Existing::kReplace
                                               : Existing::kRefuse;
    return ResultsFolder::open(options_.out.empty() ? name + ".results" : options_.out, existing);
  }

  // Writes summary.json and report.html, and prints the summary on stdout. Errors: kSystem.
  Result<ExitCode> conclude(const ResultsFolder& folder, const Results& results) const {
    const auto& [experiment, records] = results;
    const bool color = console_.colors_output();
    const Summary summary = summarise(experiment, records);
    fmt::print("{}", summary_text(experiment, summary, color));
    RETURN_IF_ERROR(folder.write("summary.json", summary_json(experiment, summary)));
    const auto page = page_of({}, "page.html", report_data(experiment, summary, records, folder));
    RETURN_IF_ERROR(folder.write("report.html", page));
    std::fflush(stdout);  // before the notes
    console_.note(fmt::format("report: {}", folder.file("report.html")));
    for (const auto& arms : summary.equals) console_.note(equals_text(experiment, arms));
    if (summary.failed() > 0) return cli::kExitFailed;
    return summary.passed() ? cli::kExitOk : cli::kExitThresholdMissed;
  }

  const AbOptions& options_;
  std::string command_line_;
  const cli::Console& console_;
  bool running_ = false;
};

}  // namespace
}  // namespace pacecar::ab

namespace pacecar {

int run_ab(int argc, char** argv) {
  ab::AbOptions options;
  // After "--" follows another command, whose flags are not ours.
  char** const end = argv + argc;
  char** const dashes = std::find(argv, end, std::string_view("--"));
  options.of_programs = dashes != end;
  if (options.of_programs) options.command.assign(dashes + 1, end);
  CLI::App app("Compares arms of an experiment: simulations of a plan, or real programs.",
               "pacecar ab");
  ab::add_plan_flags(app, options);
  ab::add_program_flags(app, options);
  return cli::run_subcommand(
      app, static_cast<int>(dashes - argv), argv, {},
      [&](const cli::Console& console) -> Result<int> {
        ab::AbCommand command(options, {argv, end}, console);
        const auto judged = ab::judge(app, options);
        const Result<int> code = judged ? command.run() : tl::unexpected(judged.error());
        return cli::code_of(
            code, console,
            command.running() ? cli::exit_code_of : [](const Error&) { return cli::kExitUsage; });
      });
}

}  // namespace pacecar
