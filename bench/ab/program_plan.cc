#include "bench/ab/program_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "bench/ab/plan_cells.h"
#include "bench/sim/spec_reader.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

constexpr uint64_t kMaxRounds = 100'000;
constexpr uint64_t kDefaultRounds = 10;

std::vector<std::string> read_words(SpecReader& reader, std::string_view key) {
  std::vector<std::string> words;
  const SpecValue* value = reader.value(key);
  if (value == nullptr) return words;
  if (value->list() == nullptr) {
    reader.complain(key, "takes a list of texts, such as [\"one\", \"two\"]");
    return words;
  }
  for (const SpecValue& word : *value->list()) words.push_back(plain_text(word));
  return words;
}

// An arm or a factor value.
Result<ProgramArm> read_settings(const SpecValue& value, const std::string& what) {
  SpecReader reader(*value.table(), what, value.place);
  ProgramArm settings{reader.text("name", ""), {}, read_words(reader, "flags")};
  if (settings.name.empty()) reader.complain("name", "is missing: every one needs its own");
  const SpecValue* environment = reader.table("environment");
  RETURN_IF_ERROR(reader.finish());
  if (environment == nullptr) return settings;
  for (const auto& [name, text] : environment->table()->entries()) {
    settings.environment.push_back(name + "=" + plain_text(text));
  }
  return settings;
}

// All tables under `key`, with names of their own.
Result<std::vector<ProgramArm>> read_all_settings(const SpecValue& parent, const std::string& key,
                                                  const std::string& title,
                                                  const std::string& names_of) {
  ASSIGN_OR_RETURN(const auto tables, tables_of(*parent.table(), key));
  std::vector<ProgramArm> all;
  std::vector<std::string> names;
  for (const SpecValue* table : tables) {
    ASSIGN_OR_RETURN(auto settings, read_settings(*table, title));
    names.push_back(settings.name);
    all.push_back(std::move(settings));
  }
  RETURN_IF_ERROR(check_names(names, names_of, parent.place));
  return all;
}

Result<void> read_arms(const SpecValue& file, ProgramPlan& plan) {
  auto arms = read_all_settings(file, "arm", "[[arm]]", "arms");
  if (!arms) return tl::unexpected(arms.error());
  plan.arms = std::move(*arms);
  if (plan.arms.size() >= 2) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: a comparison needs two arms: write [[arm]] with name = \"...\" and "
                          "environment = {{...}} for each",
                          file.place.text()));
}

// flag = "--senders", values = [2, 4]: a flag that takes each value.
std::vector<ProgramArm> short_values(SpecReader& reader) {
  std::vector<ProgramArm> values;
  const std::string flag = reader.text("flag", "");
  for (const std::string& value : read_words(reader, "values")) {
    values.push_back({value, {}, {flag, value}});
  }
  if (flag.empty() || values.empty()) {
    reader.complain("values",
                    "is missing: write flag = \"--FLAG\" and values = [..], or each value under "
                    "[[factor.value]]");
  }
  return values;
}

Result<ProgramFactor> read_factor(const SpecValue& value) {
  SpecReader reader(*value.table(), "[[factor]]", value.place);
  ProgramFactor factor{reader.text("name", ""), {}};
  if (factor.name.empty() || factor.name == "arm" || factor.name == "seed") {
    reader.complain("name", "is missing, 'arm' or 'seed': every factor needs a name of its own");
  }
  if (reader.has("value")) {
    reader.value("value");
    ASSIGN_OR_RETURN(factor.values, read_all_settings(value, "value", "[[factor.value]]",
                                                      "values of factor '" + factor.name + "'"));
  } else {
    factor.values = short_values(reader);
  }
  RETURN_IF_ERROR(reader.finish());
  return factor;
}

// And which of their combinations run.
Result<void> read_factors(const SpecValue& file, ProgramPlan& plan) {
  ASSIGN_OR_RETURN(const auto tables, tables_of(*file.table(), "factor"));
  std::vector<std::string> names;
  for (const SpecValue* table : tables) {
    ASSIGN_OR_RETURN(auto factor, read_factor(*table));
    names.push_back(factor.name);
    plan.factors.push_back(std::move(factor));
  }
  RETURN_IF_ERROR(check_names(names, "factors", file.place));
  Experiment experiment = make_experiment(plan);
  experiment.cells.clear();
  RETURN_IF_ERROR(choose_cells(*file.table(), experiment));
  plan.cells = std::move(experiment.cells);
  if (!plan.cells.empty()) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("{}: the plan has no run: look at [[skip]] and [[only]]", file.place.text()));
}

Result<void> read_head(const SpecValue& file, const std::string& name, ProgramPlan& plan) {
  SpecReader reader(*file.table(), "top level", file.place);
  plan.name = reader.text("name", name);
  plan.description = reader.text("description", "");
  plan.command = read_words(reader, "command");
  if (plan.command.empty()) reader.complain("command", "is empty: name the program to run");
  plan.blocks = reader.whole("rounds", kDefaultRounds, 1, kMaxRounds);
  plan.warmups = reader.whole("warm_up", 0, 0, kMaxRounds);
  plan.timeout = reader.duration("timeout", Duration::max());
  plan.seed = reader.whole("seed", 1);
  plan.metrics = read_words(reader, "metrics");
  std::vector<std::string_view> arms;
  for (const ProgramArm& arm : plan.arms) arms.push_back(arm.name);
  plan.baseline = reader.choice("baseline", 0, arms);
  for (const std::string_view key : {"arm", "factor", "skip", "only", "threshold"}) {
    reader.value(key);
  }
  return reader.finish();
}

Result<void> read_thresholds(const SpecValue& file, ProgramPlan& plan) {
  ASSIGN_OR_RETURN(const auto tables, tables_of(*file.table(), "threshold"));
  Experiment experiment = make_experiment(plan);
  for (const SpecValue* table : tables) {
    RETURN_IF_ERROR(read_threshold(*table, experiment));
  }
  plan.thresholds = std::move(experiment.thresholds);
  return {};
}

Result<std::optional<ProgramPlan>> make_program_plan(const SpecValue& file,
                                                     const std::string& name) {
  if (file.table()->find("command") == nullptr) return std::nullopt;
  ProgramPlan plan;
  RETURN_IF_ERROR(read_arms(file, plan));
  RETURN_IF_ERROR(read_head(file, name, plan));
  RETURN_IF_ERROR(read_factors(file, plan));
  RETURN_IF_ERROR(read_thresholds(file, plan));
  return plan;
}

}  // namespace

Result<std::optional<ProgramPlan>> read_program_plan(const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, read_spec(path));
  return make_program_plan(file, std::filesystem::path(path).stem());
}

Result<std::optional<ProgramPlan>> parse_program_plan(std::string_view text,
                                                      const std::string& name) {
  ASSIGN_OR_RETURN(const auto file, parse_spec(text, name));
  return make_program_plan(file, name);
}

}  // namespace pacecar::ab
