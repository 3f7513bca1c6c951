#include "bench/ab/results_folder.h"

#include <fmt/format.h>

#include <filesystem>

#include "bench/perf/files.h"
#include "bench/perf/json_fields.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFiles[] = {"runs.jsonl",   "experiment.json", "plan.toml", "summary.csv",
                                  "summary.json", "report.html",     "repro.sh"};
constexpr const char* kDetails = "runs";
constexpr const char* kExperiment = "experiment.json";

}  // namespace

Result<ResultsFolder> ResultsFolder::open(const std::string& path, Existing existing) {
  const ResultsFolder folder(path);
  std::error_code failed;
  const bool used =
      fs::exists(folder.file(kExperiment), failed) || fs::exists(folder.records(), failed);
  if (used && existing == Existing::kRefuse) {
    return invalid(
        "{} holds results already: go on with --resume, replace them with --force, or choose "
        "another folder with --out",
        path);
  }
  if (existing == Existing::kReplace) {
    for (const char* name : kFiles) fs::remove(folder.file(name), failed);
    fs::remove_all(folder.file(kDetails), failed);
  }
  fs::create_directories(folder.file(kDetails), failed);
  if (failed) {
    return fail(ErrorCode::kSystem, fmt::format("cannot make {}: {}: choose another folder with "
                                                "--out",
                                                folder.file(kDetails), failed.message()));
  }
  return folder;
}

std::string ResultsFolder::file(std::string_view name) const {
  return (fs::path(path_) / name).string();
}

std::string ResultsFolder::detail_name(const RunRecord& record) {
  return fmt::format("{}/{:06}-{}.json", kDetails, record.index, record.spec_hash);
}

Result<void> ResultsFolder::write(std::string_view name, std::string_view text) const {
  // Writes another name and renames it, so that readers see the old file or the new one.
  const std::string path = file(name);
  const std::string unfinished = path + ".new";
  RETURN_IF_ERROR(perf::write_text(unfinished, text));
  std::error_code failed;
  fs::rename(unfinished, path, failed);
  if (!failed) return {};
  return fail(ErrorCode::kSystem, fmt::format("cannot replace {}: {}: choose another folder with "
                                              "--out",
                                              path, failed.message()));
}

Result<void> ResultsFolder::write_experiment(const Experiment& experiment) const {
  return write(kExperiment, json_of(experiment).dump(1) + "\n");
}

Result<void> ResultsFolder::write_records(const std::vector<RunRecord>& records) const {
  std::string text;
  for (const RunRecord& record : records) text += to_line(record) + "\n";
  return write("runs.jsonl", text);
}

Result<Experiment> ResultsFolder::read_experiment() const {
  const auto text = perf::read_text(file(kExperiment));
  if (!text) {
    return fail(ErrorCode::kNotFound,
                fmt::format("{} holds no results: name a folder that 'pacecar ab' wrote", path_));
  }
  auto experiment = experiment_from_json(perf::parse_json(*text));
  if (experiment) return experiment;
  return fail(experiment.error().code,
              fmt::format("{} cannot be used: {}: run the experiment again", file(kExperiment),
                          experiment.error().message));
}

Result<std::vector<RunRecord>> ResultsFolder::read_finished() const {
  if (!fs::exists(records())) return std::vector<RunRecord>();
  return pacecar::ab::read_records(records());
}

nlohmann::json ResultsFolder::read_detail(const RunRecord& record) const {
  if (record.detail.empty()) return {};
  const auto text = perf::read_text(file(record.detail));
  nlohmann::json detail = perf::parse_json(text.value_or(""));
  return detail.is_discarded() ? nlohmann::json() : detail;
}

}  // namespace pacecar::ab
