#include "bench/ab/program_plan.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "bench/ab/plan_parts.h"
#include "bench/ab/provenance.h"
#include "bench/perf/files.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

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
    experiment.arms[arm].settings = shell_line(settings.environment);
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
  plan.experiment.description = shell_line(command);
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
  experiment.arms.push_back({name, shell_line(variables)});
  plan.commands.push_back({command, variables});
  return {};
}

}  // namespace pacecar::ab
