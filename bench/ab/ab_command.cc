// `pacecar ab`: compares arms of an experiment, simulated or real.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/ab/ab_options.h"
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
#include "bench/sim/summary.h"
#include "transport/base/invalid.h"
#include "transport/base/params.h"
#include "transport/base/result.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

using cli::ExitCode;

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
  AbCommand(const AbOptions& options, const std::vector<std::string>& argv)
      : options_(options),
        command_line_("pacecar " + cli::shell_line(argv)),
        console_(options.console.quiet, !options.console.no_color) {}

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

  const cli::Console& console() const { return console_; }
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
  cli::Console console_;
  bool running_ = false;
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
  const auto code = command.run();
  return cli::code_of(
      code, command.console(),
      command.running() ? cli::exit_code_of : [](const Error&) { return cli::kExitUsage; });
}

}  // namespace pacecar
