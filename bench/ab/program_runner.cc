#include "bench/ab/program_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <numeric>

#include "bench/ab/metric_info.h"
#include "bench/ab/output_parser.h"
#include "bench/ab/process.h"
#include "bench/ab/provenance.h"
#include "transport/base/prng.h"

namespace pacecar::ab {
namespace {

constexpr size_t kToldLines = 5;  // of what a failed command printed
constexpr const char* kWallTime = "wall_s";

std::string joined(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_quoted(word);
  return line;
}

// Every arm but the baseline must be better by so much.
Result<void> add_thresholds(const ProgramPlan& plan, Experiment& experiment) {
  if (!plan.min_improvement) return {};
  const std::string& metric = experiment.shown.front();
  const Better better = metric_info(metric).better;
  if (better == Better::kNeither) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is neither better when lower nor when higher: choose another "
                            "--metric for --min-improvement",
                            metric));
  }
  for (size_t cell = 1; cell < experiment.cells.size(); ++cell) {
    Threshold threshold{.metric = metric, .cell = cell, .versus = 0, .of = Threshold::Of::kRatio};
    const bool higher = better == Better::kHigher;
    const double share = *plan.min_improvement / 100;
    threshold.reference = higher ? 1 + share : 1 - share;
    (higher ? threshold.low : threshold.high) = threshold.reference;
    threshold.expected = fmt::format("{} {:g} x {}", higher ? "at least" : "at most",
                                     threshold.reference, experiment.arms[0].name);
    experiment.thresholds.push_back(threshold);
  }
  return {};
}

class ProgramRunner {
 public:
  ProgramRunner(const ProgramPlan& plan, const ResultsFolder& folder,
                const std::string& command_line, const RunProgressSink& progress)
      : plan_(plan),
        folder_(folder),
        progress_(progress),
        provenance_(provenance(command_line)),
        all_((plan.warmups + plan.blocks) * plan.arms.size()),
        results_{make_experiment(plan), {}} {}

  Result<ProgramResults> run() {
    for (size_t i = 0; i < plan_.warmups * plan_.arms.size(); ++i) {
      const auto outcome = run_command(i % plan_.arms.size());
      if (!outcome) return tl::unexpected(outcome.error());
    }
    for (const ProgramStep& step : program_order(plan_.arms.size(), plan_.blocks, plan_.seed)) {
      if (auto kept = run_step(step); !kept) return tl::unexpected(kept.error());
    }
    if (auto added = add_thresholds(plan_, results_.experiment); !added) {
      return tl::unexpected(added.error());
    }
    std::sort(results_.records.begin(), results_.records.end(),
              [](const RunRecord& a, const RunRecord& b) { return a.index < b.index; });
    return std::move(results_);
  }

 private:
  Result<Outcome> run_command(size_t arm) {
    const ProgramArm& settings = plan_.arms[arm];
    if (!processes_.start(arm, command_body(plan_.command, settings.environment), plan_.timeout)) {
      return fail(ErrorCode::kSystem, "the system gives no further process: free memory");
    }
    for (;;) {
      auto ended = processes_.wait();
      if (Processes::interrupted()) {
        return fail(ErrorCode::kUnavailable, "interrupted: what was measured is in runs.jsonl");
      }
      progress_(done_, all_);
      if (!ended) continue;
      progress_(++done_, all_);
      const Outcome& outcome = ended->second;
      if (outcome.ok()) return std::move(ended->second);
      const std::string lines = last_lines(outcome.output + "\n" + outcome.errors, kToldLines);
      return fail(ErrorCode::kSystem,
                  fmt::format("{} {} {}; its last lines:\n{}", joined(settings.environment),
                              joined(plan_.command), outcome.cause(),
                              lines.empty() ? "(it printed nothing)" : lines));
    }
  }

  Result<void> run_step(const ProgramStep& step) {
    const auto outcome = run_command(step.arm);
    if (!outcome) return tl::unexpected(outcome.error());
    ParsedOutput parsed = parse_output(outcome->output);
    parsed.metrics[kWallTime] = outcome->seconds;
    if (parsed.headline.empty()) parsed.headline.push_back(kWallTime);
    if (auto chosen = choose_metrics(parsed); !chosen) return chosen;
    RunRecord record = record_of(results_.experiment, step.arm * plan_.blocks + step.block);
    record.ok = true;
    record.metrics = std::move(parsed.metrics);
    record.wall_seconds = outcome->seconds;
    record.provenance = provenance_;
    const auto printed =
        folder_.write(fmt::format("runs/{:06}.txt", record.index), outcome->output);
    if (!printed) return printed;
    const auto kept = append_record(folder_.records(), record);
    results_.records.push_back(std::move(record));
    return kept;
  }

  // The first run decides what is shown.
  Result<void> choose_metrics(const ParsedOutput& parsed) {
    std::vector<std::string>& shown = results_.experiment.shown;
    if (shown.empty()) shown = plan_.metrics;
    if (shown.empty()) shown = parsed.headline;
    std::vector<std::string> needed = shown;
    for (const Threshold& threshold : plan_.thresholds) needed.push_back(threshold.metric);
    for (const std::string& metric : needed) {
      if (parsed.metrics.contains(metric)) continue;
      std::string names;
      for (const auto& [name, value] : parsed.metrics) names += (names.empty() ? "" : ", ") + name;
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("the command's output has no '{}': choose --metric among {}", metric, names));
    }
    return {};
  }

  const ProgramPlan& plan_;
  const ResultsFolder& folder_;
  const RunProgressSink& progress_;
  nlohmann::ordered_json provenance_;
  size_t all_;
  size_t done_ = 0;
  Processes processes_;
  ProgramResults results_;
};

}  // namespace

Experiment make_experiment(const ProgramPlan& plan) {
  Experiment experiment;
  experiment.kind = Experiment::Kind::kPrograms;
  experiment.name =
      plan.name.empty() ? std::filesystem::path(plan.command[0]).filename().string() : plan.name;
  experiment.description = plan.description.empty() ? joined(plan.command) : plan.description;
  experiment.baseline = plan.baseline;
  experiment.thresholds = plan.thresholds;
  for (size_t arm = 0; arm < plan.arms.size(); ++arm) {
    experiment.arms.push_back({plan.arms[arm].name, joined(plan.arms[arm].environment)});
    experiment.cells.push_back({arm, {}});
  }
  experiment.seeds.resize(plan.blocks);
  std::iota(experiment.seeds.begin(), experiment.seeds.end(), 1);
  return experiment;
}

Result<std::vector<std::string>> split_environment(const std::string& text) {
  std::vector<std::string> words;
  char quote = 0;
  bool inside = false;  // of a word
  for (const char letter : text) {
    if (quote != 0 ? letter == quote : letter == '\'' || letter == '"') {
      quote = quote != 0 ? 0 : letter;
    } else if (quote == 0 && (letter == ' ' || letter == '\t')) {
      inside = false;
    } else {
      if (!inside) words.emplace_back();
      inside = true;
      words.back() += letter;
    }
  }
  const auto broken = std::find_if(words.begin(), words.end(), [](const std::string& word) {
    const size_t equals = word.find('=');
    return equals == 0 || equals == std::string::npos;
  });
  if (quote == 0 && broken == words.end()) return words;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is no list of variables: write NAME=value NAME='two words'", text));
}

std::vector<ProgramStep> program_order(size_t arms, size_t blocks, uint64_t seed) {
  Prng prng(seed);
  std::vector<ProgramStep> steps;
  std::vector<size_t> order(arms);
  std::iota(order.begin(), order.end(), 0);
  for (size_t block = 0; block < blocks; ++block) {
    for (size_t i = arms; i > 1; --i) std::swap(order[i - 1], order[prng.below(i)]);
    for (const size_t arm : order) steps.push_back({block, arm});
  }
  return steps;
}

Result<ProgramResults> run_programs(const ProgramPlan& plan, const ResultsFolder& folder,
                                    const std::string& command_line,
                                    const RunProgressSink& progress) {
  return ProgramRunner(plan, folder, command_line, progress).run();
}

}  // namespace pacecar::ab
