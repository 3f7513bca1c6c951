#include "bench/ab/program_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "bench/ab/plan_cells.h"
#include "bench/sim/spec_reader.h"

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

Result<ProgramArm> read_arm(const SpecValue& value) {
  SpecReader reader(*value.table(), "[[arm]]", value.place);
  ProgramArm arm{reader.text("name", ""), {}};
  if (arm.name.empty()) reader.complain("name", "is missing: every one needs its own");
  const SpecValue* environment = reader.table("environment");
  if (auto done = reader.finish(); !done) return tl::unexpected(done.error());
  if (environment == nullptr) return arm;
  for (const auto& [name, text] : environment->table()->entries()) {
    arm.environment.push_back(name + "=" + plain_text(text));
  }
  return arm;
}

Result<void> read_arms(const SpecValue& file, ProgramPlan& plan) {
  const auto tables = tables_of(*file.table(), "arm");
  if (!tables) return tl::unexpected(tables.error());
  for (const SpecValue* table : *tables) {
    auto arm = read_arm(*table);
    if (!arm) return tl::unexpected(arm.error());
    if (std::ranges::find(plan.arms, arm->name, &ProgramArm::name) != plan.arms.end()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: there are two arms named '{}': rename one", table->place.text(),
                              arm->name));
    }
    plan.arms.push_back(std::move(*arm));
  }
  if (plan.arms.size() >= 2) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: a comparison needs two arms: write [[arm]] with name = \"...\" and "
                          "environment = {{...}} for each",
                          file.place.text()));
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
  reader.value("arm");
  reader.value("threshold");
  return reader.finish();
}

Result<void> read_thresholds(const SpecValue& file, ProgramPlan& plan) {
  const auto tables = tables_of(*file.table(), "threshold");
  if (!tables) return tl::unexpected(tables.error());
  Experiment experiment = make_experiment(plan);
  for (const SpecValue* table : *tables) {
    if (auto read = read_threshold(*table, experiment); !read) return read;
  }
  plan.thresholds = std::move(experiment.thresholds);
  return {};
}

Result<std::optional<ProgramPlan>> make_program_plan(const SpecValue& file,
                                                     const std::string& name) {
  if (file.table()->find("command") == nullptr) return std::nullopt;
  ProgramPlan plan;
  Result<void> done = read_arms(file, plan);
  if (done) done = read_head(file, name, plan);
  if (done) done = read_thresholds(file, plan);
  if (!done) return tl::unexpected(done.error());
  return plan;
}

}  // namespace

Result<std::optional<ProgramPlan>> read_program_plan(const std::string& path) {
  const auto file = read_spec(path);
  if (!file) return tl::unexpected(file.error());
  return make_program_plan(*file, std::filesystem::path(path).stem());
}

Result<std::optional<ProgramPlan>> parse_program_plan(std::string_view text,
                                                      const std::string& name) {
  const auto file = parse_spec(text, name);
  if (!file) return tl::unexpected(file.error());
  return make_program_plan(*file, name);
}

}  // namespace pacecar::ab
