// `pacecar ab`: compares arms of an experiment, simulated or real.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "bench/ab/ab_options.h"
#include "bench/ab/emit.h"
#include "bench/ab/experiment.h"
#include "bench/ab/plan.h"
#include "bench/ab/report/report.h"
#include "bench/ab/report_data.h"
#include "bench/ab/results.h"
#include "bench/ab/runner.h"
#include "bench/ab/summary.h"
#include "bench/cli/clock.h"
#include "bench/cli/command_line.h"
#include "bench/cli/console.h"
#include "bench/cli/subcommands.h"
#include "transport/base/invalid.h"
#include "transport/base/result.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

namespace fs = std::filesystem;

// Exit codes of `pacecar ab`.
enum ExitCode : int {
  kPassed = 0,
  kThresholdMissed = 1,
  kError = 2,  // a wrong flag or plan, a run that failed, a file that cannot be written
};

// Draws how far the runs are, as long as it exists.
RunProgressSink progress_bar(const cli::Console& console) {
  const auto bar = std::make_shared<cli::ProgressBar>(console.interactive());
  return [bar, start = cli::steady_now()](size_t done, size_t all) {
    const Duration elapsed = cli::steady_now() - start;
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

  Result<ExitCode> run() { return options_.what == AbOptions::What::kMerge ? merge() : plan(); }

  const cli::Console& console() const { return console_; }

 private:
  Result<ExitCode> plan() {
    ASSIGN_OR_RETURN(const auto plan, options_.what == AbOptions::What::kPrograms
                                          ? Result<Plan>(options_.programs)
                                          : read_plan(options_.plan, options_.seed));
    const bool for_simulations =
        options_.run || options_.resume || !options_.emit.empty() || options_.jobs.value_or(1) > 1;
    if (plan.of_programs() && for_simulations) {
      return invalid(
          "--run, --resume, --jobs and --emit are for simulations: leave them out with a plan that "
          "has a command");
    }
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
    return run_these(plan, runs);
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
                        .name = plan.experiment.name,
                        .runs = runs,
                        .seed = options_.seed,
                        .jobs = options_.jobs};
    ASSIGN_OR_RETURN(const auto next, options_.emit == "slurm" ? emit_slurm(jobs, folder)
                                                               : emit_parallel(jobs, folder));
    fmt::print("{}", next);
    return kPassed;
  }

  Result<ExitCode> run_these(const Plan& plan, const std::vector<size_t>& runs) {
    ASSIGN_OR_RETURN(const auto folder, open_at(out(plan.experiment.name)));
    ASSIGN_OR_RETURN(auto finished, folder.read_records());
    if (!plan.text.empty()) RETURN_IF_ERROR(folder.write("plan.toml", plan.text));
    RETURN_IF_ERROR(folder.write_experiment(plan.experiment));
    RETURN_IF_ERROR(write_repro(folder, argv_, fs::current_path().string(), options_.plan));
    ASSIGN_OR_RETURN(const auto results, run_plan(plan, runs,
                                                  {.jobs = options_.jobs.value_or(processors()),
                                                   .finished = std::move(finished),
                                                   .command_line = command_line_},
                                                  folder, progress_bar(console_)));
    return options_.run ? single_result(results.records) : conclude(folder, results);
  }

  // With --run: the summary is made when the folders of all jobs are merged.
  Result<ExitCode> single_result(const std::vector<RunRecord>& records) {
    for (const RunRecord& record : records) {
      if (record.index != *options_.run || record.ok) continue;
      return fail(ErrorCode::kInternal, record.error);
    }
    return kPassed;
  }

  Result<ExitCode> merge() {
    ASSIGN_OR_RETURN(const auto folder, open_at(out("merged")));
    ASSIGN_OR_RETURN(const auto merged, merge_results(options_.folders, folder));
    const auto code = conclude(folder, merged);
    std::vector<size_t> missing(merged.experiment.runs());
    std::iota(missing.begin(), missing.end(), 0);
    for (const RunRecord& record : merged.records) std::erase(missing, record.index);
    if (!code || missing.empty()) return code;
    return fail(ErrorCode::kUnavailable,
                fmt::format("{} of {} runs are missing: {}: run them with --run, and merge again",
                            missing.size(), merged.experiment.runs(), index_ranges(missing)));
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
  Result<ExitCode> conclude(const ResultsFolder& folder, const Results& results) const {
    const auto& [experiment, records] = results;
    const bool color = cli::may_color(!options_.no_color, STDOUT_FILENO);
    const Summary summary = summarise(experiment, records);
    fmt::print("{}", summary_text(experiment, summary, color));
    RETURN_IF_ERROR(folder.write_experiment(experiment));
    RETURN_IF_ERROR(folder.write("summary.json", summary_json(experiment, summary)));
    RETURN_IF_ERROR(folder.write("summary.csv", summary_csv(experiment, summary)));
    const auto page = page_of({}, "page.html", report_data(experiment, summary, records, folder));
    RETURN_IF_ERROR(folder.write("report.html", page));
    console_.note(fmt::format("report: {}", folder.file("report.html")));
    if (!summary.failed.empty()) return kError;
    return summary.passed() ? kPassed : kThresholdMissed;
  }

  const AbOptions& options_;
  std::vector<std::string> argv_;
  std::string command_line_ = "pacecar " + cli::shell_line(argv_);
  cli::Console console_;
};

}  // namespace
}  // namespace pacecar::ab

namespace pacecar {

int run_ab(int argc, char** argv) {
  const auto options = ab::parse_ab_options(argc, argv);
  if (!options) {
    cli::Console(false, true).error(options.error().message);
    return cli::kExitUsage;
  }
  if (!options->help.empty()) {
    fmt::print("{}", options->help);
    return cli::kExitOk;
  }
  ab::AbCommand command(*options, {argv, argv + argc});
  return cli::code_of(command.run(), command.console(),
                      [](const Error&) { return cli::kExitUsage; });
}

}  // namespace pacecar
