#include "bench/ab/programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <span>

#include "bench/ab/output_parser.h"
#include "bench/ab/plan_parts.h"
#include "bench/ab/process.h"
#include "bench/ab/provenance.h"
#include "bench/perf/command_line.h"
#include "bench/perf/files.h"
#include "transport/base/invalid.h"
#include "transport/base/prng.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

// --- plans ---

constexpr uint64_t kMaxRounds = 100'000;
constexpr uint64_t kDefaultRounds = 10;

// Adds what a layer sets to a command.
void put_on(ProgramCommand& command, const SpecTable& keys) {
  if (const SpecValue* environment = keys.find("environment")) {
    for (const auto& [name, text] : environment->table()->entries()) {
      command.environment.push_back(name + "=" + plain_text(text));
    }
  }
  if (const SpecValue* flags = keys.find("flags")) {
    for (const SpecValue& flag : *flags->list()) command.words.push_back(plain_text(flag));
  }
}

// Variables of an environment, split as a shell does.
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
  return invalid("'{}' is no list of variables: write NAME=value NAME='two words'", text);
}

// --- runs ---

constexpr size_t kCommandLines = 5;  // of a failed command's output, in the error
constexpr const char* kWallTime = "wall_s";

// --min-improvement: every arm but the baseline must be better by so many percent.
Result<void> add_thresholds(const ProgramPlan& plan, Experiment& experiment) {
  if (!plan.min_improvement) return {};
  const std::string& metric = experiment.shown.front();
  const Better better = metric_info(metric).better;
  if (better == Better::kNeither) {
    return invalid(
        "'{}' is neither better when lower nor when higher: choose another --metric for "
        "--min-improvement",
        metric);
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
        results_{plan.experiment, {}} {
    const Experiment& experiment = results_.experiment;
    steps_ = program_order(experiment.cells, experiment.seeds.size(), plan.seed);
    std::vector<bool> wanted(experiment.runs(), !plan.runs);
    for (const size_t run : plan.runs.value_or(std::vector<size_t>())) wanted[run] = true;
    std::erase_if(steps_, [&](const ProgramStep& step) { return !wanted[run_of(step)]; });
    for (const ProgramStep& step : steps_) {
      if (std::ranges::find(cells_, step.cell) == cells_.end()) cells_.push_back(step.cell);
    }
    all_ = plan.warmups * cells_.size() + steps_.size();
    unseen_ = experiment.shown;
  }

  Result<ProgramResults> run() {
    for (size_t i = 0; i < plan_.warmups * cells_.size(); ++i) {
      RETURN_IF_ERROR(run_command(cells_[i % cells_.size()]));
    }
    for (const ProgramStep& step : steps_) {
      RETURN_IF_ERROR(run_step(step));
    }
    RETURN_IF_ERROR(add_thresholds(plan_, results_.experiment));
    std::ranges::sort(results_.records, {}, &RunRecord::index);
    return std::move(results_);
  }

 private:
  size_t run_of(const ProgramStep& step) const {
    return step.cell * plan_.experiment.seeds.size() + step.block;
  }

  Result<Outcome> run_command(size_t cell) {
    const ProgramCommand& command = plan_.commands[cell];
    ASSIGN_OR_RETURN(auto child,
                     perf::Child::execute(command.words, {.environment = command.environment}));
    processes_.add(cell, std::move(child), plan_.timeout);
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
      const std::string lines =
          perf::last_lines(outcome.output + "\n" + outcome.errors, kCommandLines);
      return fail(ErrorCode::kSystem, fmt::format("{} {} {}; its last lines:\n{}",
                                                  perf::shell_line(command.environment),
                                                  perf::shell_line(command.words), outcome.cause(),
                                                  lines.empty() ? "(it printed nothing)" : lines));
    }
  }

  Result<void> run_step(const ProgramStep& step) {
    ASSIGN_OR_RETURN(const auto outcome, run_command(step.cell));
    ParsedOutput parsed = parse_output(outcome.output);
    parsed.metrics[kWallTime] = outcome.seconds;
    if (parsed.headline.empty()) parsed.headline.push_back(kWallTime);
    RETURN_IF_ERROR(choose_metrics(parsed, step));
    RunRecord record = record_of(results_.experiment, run_of(step));
    record.ok = true;
    record.metrics = std::move(parsed.metrics);
    record.wall_seconds = outcome.seconds;
    record.provenance = provenance_;
    RETURN_IF_ERROR(folder_.write(fmt::format("runs/{:06}.txt", record.index), outcome.output));
    const auto kept = append_record(folder_.records(), record);
    results_.records.push_back(std::move(record));
    return kept;
  }

  // Without names, the first run's output decides which metrics are shown. Otherwise each must be
  // in the output of at least one cell, and the metric of a threshold in that of its cell.
  Result<void> choose_metrics(const ParsedOutput& parsed, const ProgramStep& step) {
    std::vector<std::string>& shown = results_.experiment.shown;
    if (shown.empty()) shown = parsed.headline;
    std::erase_if(unseen_, [&](const std::string& name) { return parsed.metrics.contains(name); });
    std::vector<std::string> needed;
    for (const Threshold& threshold : plan_.experiment.thresholds) {
      if (threshold.cell == step.cell) needed.push_back(threshold.metric);
    }
    if (results_.records.size() + 1 == cells_.size()) {
      needed.insert(needed.end(), unseen_.begin(), unseen_.end());
    }
    for (const std::string& metric : needed) {
      if (parsed.metrics.contains(metric)) continue;
      std::string names;
      for (const auto& [name, value] : parsed.metrics) names += (names.empty() ? "" : ", ") + name;
      return invalid("the command's output has no '{}': choose --metric among {}", metric, names);
    }
    return {};
  }

  const ProgramPlan& plan_;
  const ResultsFolder& folder_;
  const RunProgressSink& progress_;
  nlohmann::json provenance_;
  ProgramResults results_;
  std::vector<ProgramStep> steps_;
  std::vector<size_t> cells_;        // that have a step
  std::vector<std::string> unseen_;  // shown metrics that no output has had yet
  size_t all_ = 0;
  size_t done_ = 0;
  Processes processes_;
};

template <typename T>
void shuffle(std::span<T> values, Prng& prng) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[prng.below(i)]);
}

}  // namespace

Result<std::optional<ProgramPlan>> parse_program_plan(std::string_view text,
                                                      const std::string& name) {
  ASSIGN_OR_RETURN(const auto file, parse_spec(text, name));
  if (file.table()->find("command") == nullptr) return std::nullopt;
  SpecReader top(*file.table(), "top level", file.place);
  const std::vector<std::string> command = read_texts(top, "command");
  if (command.empty()) {
    top.complain("command", "is empty: name the program to run");
    return tl::unexpected(top.finish().error());
  }
  ProgramPlan plan = program_plan(command, top.whole("rounds", kDefaultRounds, 1, kMaxRounds));
  Experiment& experiment = plan.experiment;
  experiment.name = top.text("name", std::filesystem::path(name).stem());
  experiment.description = top.text("description", experiment.description);
  experiment.shown = read_texts(top, "metrics");
  plan.warmups = top.whole("warm_up", 0, 0, kMaxRounds);
  plan.timeout = top.duration("timeout", Duration::max());
  plan.seed = top.whole("seed", 1);
  ASSIGN_OR_RETURN(const auto layers, read_parts(file, top, experiment));
  for (size_t arm = 0; arm < layers.arms.size(); ++arm) {
    ProgramCommand settings;
    put_on(settings, layers.arms[arm].keys);
    std::ranges::copy(settings.words, std::back_inserter(settings.environment));
    experiment.arms[arm].settings = perf::shell_line(settings.environment);
  }
  for (const Cell& cell : experiment.cells) {
    ProgramCommand& whole = plan.commands.emplace_back(ProgramCommand{command, {}});
    for (const SpecTable* keys : layers.of(cell)) put_on(whole, *keys);
  }
  return plan;
}

Result<std::optional<ProgramPlan>> read_program_plan(const std::string& path) {
  ASSIGN_OR_RETURN(const auto text, perf::read_text(path));
  return parse_program_plan(text, path);
}

ProgramPlan program_plan(const std::vector<std::string>& command, size_t rounds) {
  ProgramPlan plan;
  plan.experiment.kind = Experiment::Kind::kPrograms;
  plan.experiment.name = std::filesystem::path(command[0]).filename();
  plan.experiment.description = perf::shell_line(command);
  plan.experiment.seeds.resize(rounds);
  std::iota(plan.experiment.seeds.begin(), plan.experiment.seeds.end(), 1);
  return plan;
}

Result<void> add_arm(ProgramPlan& plan, const std::vector<std::string>& command,
                     const std::string& name, const std::string& environment) {
  ASSIGN_OR_RETURN(const auto variables, split_environment(environment));
  Experiment& experiment = plan.experiment;
  if (std::ranges::find(experiment.arms, name, &Arm::name) != experiment.arms.end()) {
    return invalid("there are two arms named '{}': rename one", name);
  }
  experiment.cells.push_back({experiment.arms.size(), {}});
  experiment.arms.push_back({name, perf::shell_line(variables)});
  plan.commands.push_back({command, variables});
  return {};
}

std::vector<ProgramStep> program_order(const std::vector<Cell>& cells, size_t blocks,
                                       uint64_t seed) {
  Prng prng(seed);
  std::map<std::vector<size_t>, std::vector<size_t>> arms_of;  // cells, by their factor values
  for (size_t cell = 0; cell < cells.size(); ++cell) arms_of[cells[cell].values].push_back(cell);
  std::vector<std::vector<size_t>> groups;
  for (auto& [values, arms] : arms_of) groups.push_back(std::move(arms));
  std::vector<ProgramStep> steps;
  for (size_t block = 0; block < blocks; ++block) {
    shuffle(std::span(groups), prng);
    for (std::vector<size_t>& group : groups) {
      shuffle(std::span(group), prng);
      for (const size_t cell : group) steps.push_back({block, cell});
    }
  }
  return steps;
}

Result<ProgramResults> run_programs(const ProgramPlan& plan, const ResultsFolder& folder,
                                    const std::string& command_line,
                                    const RunProgressSink& progress) {
  return ProgramRunner(plan, folder, command_line, progress).run();
}

}  // namespace pacecar::ab
