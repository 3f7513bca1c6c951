// `pacecar ab`: compares arms of an experiment, simulated or real.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/ab/experiment.h"
#include "bench/ab/plan.h"
#include "bench/ab/programs.h"
#include "bench/ab/provenance.h"
#include "bench/ab/report/report.h"
#include "bench/ab/report_data.h"
#include "bench/ab/results_folder.h"
#include "bench/ab/summary.h"
#include "bench/perf/clock.h"
#include "bench/perf/command_line.h"
#include "bench/perf/console.h"
#include "bench/perf/subcommands.h"
#include "transport/base/invalid.h"
#include "transport/base/result.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

namespace fs = std::filesystem;

// --- the command line ---

struct AbOptions {
  enum class What { kPlan, kPrograms, kMerge };
  What what = What::kPlan;
  std::string help;  // not empty: it was asked for, and nothing else counts

  // Of kPlan:
  std::string plan;  // its path
  std::vector<std::string> filters;
  std::optional<size_t> run;  // this one only
  std::optional<uint64_t> seed;
  std::optional<size_t> jobs;
  bool list = false;
  bool dry_run = false;
  std::string emit;  // "", "slurm", "parallel"

  // Of kPrograms:
  ProgramPlan programs;
  std::vector<std::string> command;  // behind "--"
  std::optional<std::string> a;
  std::optional<std::string> b;
  std::vector<std::string> arms;
  uint64_t reps = 10;
  std::optional<double> timeout;

  std::vector<std::string> folders;  // of kMerge

  std::string out;  // empty: from the plan's name
  bool resume = false;
  bool force = false;
  bool quiet = false;
  bool no_color = false;
};

constexpr uint64_t kMaxJobs = 4096;
constexpr uint64_t kMaxReps = 100'000;
constexpr double kMaxTimeoutSeconds = 1e6;
constexpr double kMaxPercent = 1e6;

constexpr const char* kPlanExamples =
    "Real programs:  pacecar ab --a 'PACECAR_CC=swift' --b 'PACECAR_CC=fixed' --reps 10 -- "
    "COMMAND\n"
    "                (several: --arm NAME='ENV'; the first is the baseline)\n"
    "Join folders:   pacecar ab merge --out FOLDER FOLDER...\n"
    "Exit codes: 0 passed, 1 a threshold was missed, 2 an error, or a run that failed.";

void add_common(CLI::App& app, AbOptions& options) {
  app.add_option("--out", options.out, "Folder for the results (default: NAME.results)");
  app.add_flag("--force", options.force, "Replace the results in that folder");
  app.add_flag("-q,--quiet", options.quiet, "No progress bar, no notes");
  app.add_flag("--no-color", options.no_color, "No colour");
  app.footer(kPlanExamples);
}

void add_plan_flags(CLI::App& app, AbOptions& options) {
  app.add_option("plan", options.plan, "The plan, a TOML file");
  app.add_flag("--list", options.list, "List the runs, and run nothing");
  app.add_flag("--dry-run", options.dry_run, "Check every run's spec, and run nothing");
  app.add_option("--filter", options.filters,
                 "Only these runs: arm=NAME, FACTOR=VALUE, seed=N; * and ? stand for any letters; "
                 "all of several must hold")
      ->delimiter(',');
  app.add_option("--run", options.run,
                 "Only the run of this number (see --list), without a summary")
      ->check(perf::whole_number(0, UINT32_MAX));
  app.add_option("--seed", options.seed,
                 "Instead of the plan's seeds; of programs: of their order (default: 1)")
      ->check(perf::whole_number(0, INT64_MAX));
  app.add_option("--jobs", options.jobs, "Runs at once (default: one per processor)")
      ->check(perf::whole_number(1, kMaxJobs));
  app.add_flag("--resume", options.resume, "Keep what is finished in the folder, run the rest");
  app.add_option("--emit", options.emit, "Write jobs for 'slurm' or GNU 'parallel' instead")
      ->check(CLI::IsMember({"slurm", "parallel"}));
}

constexpr const char* kProgramGroup = "Real programs";

void add_program_flags(CLI::App& app, AbOptions& options) {
  ProgramPlan& programs = options.programs;
  app.option_defaults()->group(kProgramGroup);
  app.add_option("--a", options.a, "Environment of the baseline");
  app.add_option("--b", options.b, "Environment of the other arm");
  app.add_option("--arm", options.arms, "NAME='ENV': one more arm");
  app.add_option("--reps", options.reps, "Runs of each arm (default: 10)")
      ->check(perf::whole_number(1, kMaxReps));
  app.add_option("--warmup", programs.warmups, "Runs of each arm before, that do not count")
      ->check(perf::whole_number(0, kMaxReps));
  app.add_option("--timeout", options.timeout, "Seconds that one run may take (default: no limit)")
      ->check(perf::positive_number(kMaxTimeoutSeconds));
  app.add_option("--metric", programs.experiment.shown,
                 "What to compare (default: what the output is known for, else wall_s)")
      ->allow_extra_args(false);
  app.add_option("--min-improvement", programs.min_improvement,
                 "Threshold: better than the baseline by so many percent")
      ->check(perf::positive_number(kMaxPercent));
  app.option_defaults()->group("Options");
}

Result<void> read_arms(const AbOptions& options, ProgramPlan& programs) {
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
  ProgramPlan& programs = options.programs;
  Experiment& experiment = programs.experiment;
  auto shown = std::move(experiment.shown);
  experiment = program_plan(options.command, options.reps).experiment;
  experiment.shown = std::move(shown);
  RETURN_IF_ERROR(read_arms(options, programs));
  if (!options.plan.empty() || options.list || options.dry_run || !options.emit.empty() ||
      options.resume || options.run || !options.filters.empty()) {
    return invalid(
        "PLAN, --list, --dry-run, --filter, --run, --resume and --emit are for simulations: leave "
        "them out with '-- COMMAND'");
  }
  if (options.jobs && *options.jobs > 1) {
    return invalid(
        "programs run one at a time, so that they do not disturb each other: leave out --jobs");
  }
  programs.seed = options.seed.value_or(1);
  if (options.timeout) {
    programs.timeout = Duration::from_ns(static_cast<int64_t>(*options.timeout * 1e9));
  }
  return {};
}

Result<void> judge(const CLI::App& app, AbOptions& options) {
  if (options.resume && options.force) {
    return invalid("--resume keeps what --force replaces: give one of them");
  }
  if (options.what == AbOptions::What::kPrograms) return read_programs(options);
  for (const CLI::Option* flag : app.get_options()) {
    if (flag->get_group() != kProgramGroup || flag->count() == 0) continue;
    return invalid("{} is for real programs: end the command line with '-- COMMAND'",
                   flag->get_name());
  }
  if (!options.plan.empty()) return {};
  return invalid("no plan: give its TOML file, or a command behind '--' (see 'pacecar ab --help')");
}

Result<AbOptions> parse_merge(int argc, const char* const* argv) {
  AbOptions options{.what = AbOptions::What::kMerge};
  CLI::App app("Joins the results of one experiment that was run in several folders.",
               "pacecar ab merge");
  app.add_option("folders", options.folders, "Folders that 'pacecar ab' wrote")->required();
  add_common(app, options);
  ASSIGN_OR_RETURN(options.help, perf::parse_command_line(app, argc, argv));
  return options;
}

// argv[0] is "ab". Errors: kInvalidArgument, one sentence.
Result<AbOptions> parse_ab_options(int argc, const char* const* argv) {
  if (argc > 1 && std::string_view(argv[1]) == "merge") return parse_merge(argc - 1, argv + 1);
  AbOptions options;
  // After "--" follows another command, whose flags are not ours.
  const char* const* end = argv + argc;
  const char* const* dashes = std::find(argv, end, std::string_view("--"));
  if (dashes != end) {
    options.what = AbOptions::What::kPrograms;
    options.command.assign(dashes + 1, end);
    if (options.command.empty()) return invalid("no command behind '--': write what to run there");
  }
  CLI::App app("Compares arms of an experiment: simulations of a plan, or real programs.",
               "pacecar ab");
  add_plan_flags(app, options);
  add_common(app, options);
  add_program_flags(app, options);
  ASSIGN_OR_RETURN(options.help,
                   perf::parse_command_line(app, static_cast<int>(dashes - argv), argv));
  if (!options.help.empty()) return options;
  RETURN_IF_ERROR(judge(app, options));
  return options;
}

// --- the command ---

// Exit codes of `pacecar ab`.
enum ExitCode : int {
  kPassed = 0,
  kThresholdMissed = 1,
  kError = 2,  // a wrong flag or plan, a run that failed, a file that cannot be written
};

// Draws how far the runs are, as long as it exists.
RunProgressSink progress_bar(const perf::Console& console) {
  const auto bar = std::make_shared<perf::ProgressBar>(console.interactive());
  return [bar, start = perf::steady_now()](size_t done, size_t all) {
    const Duration elapsed = perf::steady_now() - start;
    if (all == 0 || !bar->due(elapsed)) return;
    bar->draw(static_cast<double>(done) / static_cast<double>(all),
              fmt::format("{} of {} runs", done, all), elapsed);
  };
}

// That this process may use.
size_t processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return static_cast<size_t>(std::max(CPU_COUNT(&set), 1));
}

class AbCommand {
 public:
  AbCommand(const AbOptions& options, std::vector<std::string> argv)
      : options_(options), argv_(std::move(argv)), console_(options.quiet, !options.no_color) {}

  Result<ExitCode> run() {
    switch (options_.what) {
      case AbOptions::What::kPlan:
        return plan();
      case AbOptions::What::kPrograms:
        return programs(options_.programs);
      case AbOptions::What::kMerge:
        return merge();
    }
    return kError;
  }

  const perf::Console& console() const { return console_; }

 private:
  Result<ExitCode> plan() {
    ASSIGN_OR_RETURN(auto program_plan, read_program_plan(options_.plan));
    if (program_plan) return programs_of_plan(*program_plan);
    ASSIGN_OR_RETURN(const auto plan, read_plan(options_.plan, options_.seed));
    ASSIGN_OR_RETURN(auto runs, filter_runs(plan.experiment, options_.filters));
    if (options_.run) {
      if (*options_.run >= plan.experiment.runs()) {
        return invalid("--run {} is beyond the last run {}: see --list", *options_.run,
                       plan.experiment.runs() - 1);
      }
      runs = {*options_.run};
    }
    if (options_.list || options_.dry_run) return list(plan.experiment, runs);
    if (!options_.emit.empty()) return emit(plan, runs);
    return simulate(plan, runs);
  }

  Result<ExitCode> list(const Experiment& experiment, const std::vector<size_t>& runs) {
    for (const size_t run : runs) {
      fmt::print("{:>6}  {}, seed {}\n", run, cell_text(experiment, experiment.cell_of(run)),
                 experiment.seed_of(run));
    }
    if (options_.dry_run) {
      fmt::print("{} runs, {} arms, {} thresholds: the plan is sound, nothing was run\n",
                 runs.size(), experiment.arms.size(), experiment.thresholds.size());
    }
    return kPassed;
  }

  Result<ExitCode> emit(const Plan& plan, const std::vector<size_t>& runs) {
    // Jobs may start in any folder: all paths are absolute.
    ASSIGN_OR_RETURN(const auto folder, open_at(fs::absolute(out(plan.experiment.name)).string()));
    std::error_code ignored;
    const EmitPlan jobs{.program = fs::read_symlink("/proc/self/exe", ignored).string(),
                        .plan = fs::absolute(options_.plan).string(),
                        .runs = runs,
                        .seed = options_.seed,
                        .jobs = options_.jobs};
    ASSIGN_OR_RETURN(const auto next, options_.emit == "slurm"
                                          ? emit_slurm(jobs, plan.experiment.name, folder)
                                          : emit_parallel(jobs, folder));
    fmt::print("{}", next);
    return kPassed;
  }

  Result<ExitCode> simulate(const Plan& plan, const std::vector<size_t>& runs) {
    ASSIGN_OR_RETURN(const auto folder, open_at(out(plan.experiment.name)));
    ASSIGN_OR_RETURN(const auto finished, folder.read_finished());
    RETURN_IF_ERROR(folder.write("plan.toml", plan.text));
    RETURN_IF_ERROR(folder.write_experiment(plan.experiment));
    RETURN_IF_ERROR(write_repro(folder, argv_, fs::current_path().string(), options_.plan));
    ASSIGN_OR_RETURN(const auto records,
                     run_plan(plan, runs, finished, folder, options_.jobs.value_or(processors()),
                              command_line_, progress_bar(console_)));
    if (options_.run) return single_result(records);
    return conclude(folder, plan.experiment, records);
  }

  // With --run: the summary is made when the folders of all jobs are merged.
  Result<ExitCode> single_result(const std::vector<RunRecord>& records) {
    for (const RunRecord& record : records) {
      if (record.index != *options_.run || record.ok) continue;
      return fail(ErrorCode::kInternal, record.error);
    }
    return kPassed;
  }

  Result<ExitCode> programs_of_plan(ProgramPlan& plan) {
    if (options_.run || options_.resume || options_.jobs.value_or(1) > 1 ||
        !options_.emit.empty()) {
      return invalid(
          "--run, --resume, --jobs and --emit are for simulations: leave them out with a plan that "
          "has a command");
    }
    if (options_.seed) plan.seed = *options_.seed;
    ASSIGN_OR_RETURN(auto runs, filter_runs(plan.experiment, options_.filters));
    if (options_.list || options_.dry_run) return list(plan.experiment, runs);
    plan.runs = std::move(runs);
    return programs(plan);
  }

  Result<ExitCode> programs(const ProgramPlan& plan) {
    ASSIGN_OR_RETURN(const auto folder, open_at(out(plan.experiment.name)));
    RETURN_IF_ERROR(write_repro(folder, argv_, fs::current_path().string(), options_.plan));
    ASSIGN_OR_RETURN(const auto results,
                     run_programs(plan, folder, command_line_, progress_bar(console_)));
    return conclude(folder, results.experiment, results.records);
  }

  Result<ExitCode> merge() {
    ASSIGN_OR_RETURN(const auto folder, open_at(out("merged")));
    ASSIGN_OR_RETURN(const auto merged, merge_results(options_.folders, folder));
    const auto code = conclude(folder, merged.experiment, merged.records);
    if (!code || merged.missing.empty()) return code;
    return fail(
        ErrorCode::kUnavailable,
        fmt::format("{} of {} runs are missing: {}: run them with --run, and merge again",
                    merged.missing.size(), merged.experiment.runs(), index_ranges(merged.missing)));
  }

  std::string out(const std::string& name) const {
    return options_.out.empty() ? name + ".results" : options_.out;
  }

  Result<ResultsFolder> open_at(const std::string& path) const {
    using Existing = ResultsFolder::Existing;
    const Existing existing = options_.resume  ? Existing::kResume
                              : options_.force ? Existing::kReplace
                                               : Existing::kRefuse;
    return ResultsFolder::open(path, existing);
  }

  // Writes experiment.json, summary.csv, summary.json and report.html, and prints the summary on
  // stdout. Errors: kSystem.
  Result<ExitCode> conclude(const ResultsFolder& folder, const Experiment& experiment,
                            const std::vector<RunRecord>& records) const {
    const bool color = perf::may_color(!options_.no_color, STDOUT_FILENO);
    const std::string report = folder.file("report.html");
    const Summary summary = summarise(experiment, records);
    fmt::print("{}", summary_text(experiment, summary, color));
    RETURN_IF_ERROR(folder.write_experiment(experiment));
    RETURN_IF_ERROR(folder.write("summary.json", summary_json(experiment, summary)));
    RETURN_IF_ERROR(folder.write("summary.csv", summary_csv(experiment, summary)));
    RETURN_IF_ERROR(write_report(report_data(experiment, summary, records, folder), report));
    console_.note(fmt::format("report: {}", report));
    if (!summary.failed.empty()) return kError;
    return summary.passed() ? kPassed : kThresholdMissed;
  }

  const AbOptions& options_;
  std::vector<std::string> argv_;
  std::string command_line_ = "pacecar " + perf::shell_line(argv_);
  perf::Console console_;
};

}  // namespace
}  // namespace pacecar::ab

namespace pacecar {

int run_ab(int argc, char** argv) {
  const auto options = ab::parse_ab_options(argc, argv);
  if (const auto code = perf::code_of_words(options)) return *code;
  ab::AbCommand command(*options, {argv, argv + argc});
  return perf::code_of(command.run(), command.console(),
                       [](const Error&) { return perf::kExitUsage; });
}

}  // namespace pacecar
