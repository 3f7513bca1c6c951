#include "bench/perf/command_line.h"
#include "bench/ab/results_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "bench/ab/provenance.h"
#include "bench/perf/files.h"
#include "bench/perf/json_fields.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

using nlohmann::json;

constexpr int kRecordVersion = 1;

namespace fs = std::filesystem;

constexpr const char* kFiles[] = {"runs.jsonl",   "experiment.json", "plan.toml", "summary.csv",
                                  "summary.json", "report.html",     "repro.sh"};
constexpr const char* kDetails = "runs";
constexpr const char* kExperiment = "experiment.json";

Result<void> copy_detail(const RunRecord& record, const ResultsFolder& from,
                         const ResultsFolder& into) {
  if (record.detail.empty()) return {};
  // The record is untrusted: its name of a file must not lead out of the folder.
  const fs::path name = fs::path("runs") / fs::path(record.detail).filename();
  std::error_code failed;
  fs::copy_file(from.file(record.detail), into.file(name.string()),
                fs::copy_options::overwrite_existing, failed);
  if (!failed) return {};
  return fail(ErrorCode::kSystem, fmt::format("cannot copy {} to {}: {}", from.file(record.detail),
                                              into.path(), failed.message()));
}

// --- jobs and scripts ---

constexpr const char* kSlurmFile = "job_array.sh";
constexpr const char* kParallelFile = "commands.sh";
// Slurm refuses indices from MaxArraySize on, by default 1,001.
constexpr size_t kArraySize = 1000;

// "pacecar ab plan.toml --run INDEX --out FOLDER/jobs/INDEX ...". With --resume a job that is
// started again does not repeat a finished run.
std::string job_command(const EmitPlan& plan, const ResultsFolder& folder,
                        const std::string& index) {
  std::string command =
      fmt::format("{} ab {} --run {} --out {}/{} --resume --quiet", perf::shell_quoted(plan.program),
                  perf::shell_quoted(plan.plan), index, perf::shell_quoted(folder.file("jobs")), index);
  if (plan.seed) command += fmt::format(" --seed {}", *plan.seed);
  return command;
}

std::string merge_command(const EmitPlan& plan, const ResultsFolder& folder) {
  return fmt::format("{} ab merge --out {} {}/*", perf::shell_quoted(plan.program),
                     perf::shell_quoted(folder.file("merged")), perf::shell_quoted(folder.file("jobs")));
}

// A name that a scheduler takes without quotes.
std::string plain_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(),
      [](char letter) { return std::isalnum(static_cast<unsigned char>(letter)) == 0; }, '-');
  return name;
}

// The words of a command line without those that name the results' folder or are about old results.
std::vector<std::string> flags_to_keep(const std::vector<std::string>& argv) {
  std::vector<std::string> kept;
  bool command = false;  // the words behind "--" are another program's
  for (size_t i = 1; i < argv.size(); ++i) {
    command |= argv[i] == "--";
    const bool dropped =
        argv[i] == "--force" || argv[i] == "--resume" || argv[i].starts_with("--out=");
    if (!command && argv[i] == "--out") {
      ++i;
    } else if (command || !dropped) {
      kept.push_back(argv[i]);
    }
  }
  return kept;
}

std::string exports() {
  std::string lines;
  const nlohmann::json settings = provenance("")["environment"];
  for (const auto& [name, value] : settings.items()) {
    lines += fmt::format("export {}={}\n", name, perf::shell_quoted(value.get<std::string>()));
  }
  return lines;
}

}  // namespace

RunRecord record_of(const Experiment& experiment, size_t run) {
  const Cell& cell = experiment.cell_of(run);
  RunRecord record;
  record.plan = experiment.name;
  record.index = run;
  record.arm = experiment.arms[cell.arm].name;
  record.factors = factors_of(experiment, cell);
  record.seed = experiment.seed_of(run);
  return record;
}

std::string to_line(const RunRecord& record) {
  json document = record;
  document["schema_version"] = kRecordVersion;
  // A program's output may be invalid UTF-8.
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<RunRecord> record_from_line(const std::string& line) {
  const json document = perf::parse_json(line);
  if (document.is_discarded()) return invalid("it is no JSON");
  try {
    return document.get<RunRecord>();
  } catch (const json::exception& error) {
    return fail(ErrorCode::kInvalidArgument, error.what());
  }
}

Result<void> append_record(const std::string& path, const RunRecord& record) {
  const std::string line = to_line(record) + "\n";
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  // One write: after a crash a line is there or not.
  const bool written =
      file && write(file.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size());
  if (written) return {};
  return fail(ErrorCode::kSystem,
              fmt::format("cannot write {}: {}: make room, or choose another folder with --out",
                          path, std::strerror(errno)));
}

Result<std::vector<RunRecord>> read_records(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return fail(ErrorCode::kNotFound,
                fmt::format("cannot read {}: name a folder that 'pacecar ab' wrote", path));
  }
  std::map<size_t, RunRecord> latest;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    auto record = record_from_line(line);
    if (!record) {
      if (file.eof()) break;  // no line end: unfinished
      return invalid("{}, line {}: {}: remove the line, and run it again with --resume", path,
                     number, record.error().message);
    }
    latest[record->index] = std::move(*record);
  }
  std::vector<RunRecord> records;
  for (auto& [index, record] : latest) records.push_back(std::move(record));
  return records;
}

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

Result<MergedResults> merge_results(const std::vector<std::string>& folders,
                                    const ResultsFolder& into) {
  MergedResults merged;
  std::map<size_t, RunRecord> by_index;
  for (const std::string& path : folders) {
    const ResultsFolder folder(path);
    ASSIGN_OR_RETURN(auto experiment, folder.read_experiment());
    if (&path == &folders.front()) {
      merged.experiment = std::move(experiment);
    } else if (json_of(experiment) != json_of(merged.experiment)) {
      return invalid(
          "{} and {} hold results of different experiments: merge those of one plan only",
          folders.front(), path);
    }
    ASSIGN_OR_RETURN(const auto records, folder.read_finished());
    for (const RunRecord& record : records) {
      if (record.index >= merged.experiment.runs()) {
        return invalid("{} has a run {} that its experiment does not have: run it again",
                       folder.records(), record.index);
      }
      const auto known = by_index.find(record.index);
      if (known != by_index.end() && (known->second.ok || !record.ok)) continue;
      by_index[record.index] = record;
      RETURN_IF_ERROR(copy_detail(record, folder, into));
    }
  }
  for (size_t run = 0; run < merged.experiment.runs(); ++run) {
    if (!by_index.contains(run)) merged.missing.push_back(run);
  }
  for (auto& [index, record] : by_index) merged.records.push_back(std::move(record));
  RETURN_IF_ERROR(into.write_experiment(merged.experiment));
  RETURN_IF_ERROR(into.write_records(merged.records));
  return merged;
}

std::string index_ranges(const std::vector<size_t>& runs) {
  std::string text;
  for (size_t begin = 0; begin < runs.size();) {
    size_t end = begin;
    while (end + 1 < runs.size() && runs[end + 1] == runs[end] + 1) ++end;
    if (!text.empty()) text += ",";
    text += end == begin ? fmt::format("{}", runs[begin])
                         : fmt::format("{}-{}", runs[begin], runs[end]);
    begin = end + 1;
  }
  return text;
}

std::vector<SlurmArray> slurm_arrays(const std::vector<size_t>& runs) {
  std::vector<SlurmArray> arrays;
  for (auto next = runs.begin(); next != runs.end();) {
    const size_t first = *next / kArraySize * kArraySize;
    std::vector<size_t> indexes;
    for (; next != runs.end() && *next < first + kArraySize; ++next) {
      indexes.push_back(*next - first);
    }
    arrays.push_back({first, index_ranges(indexes)});
  }
  return arrays;
}

Result<std::string> emit_slurm(const EmitPlan& plan, const std::string& name,
                               const ResultsFolder& folder) {
  const std::string limit = plan.jobs ? fmt::format("%{}", *plan.jobs) : "";
  const std::string script = fmt::format(
      "#!/bin/bash\n"
      "#SBATCH --job-name=pacecar-{}\n"
      "#SBATCH --ntasks=1\n"
      "#SBATCH --cpus-per-task=1\n"
      "# One run per array task: that of its index, counted from $1. When all are done: {}\n"
      "set -eu\n"
      "run=$(($1 + SLURM_ARRAY_TASK_ID))\n"
      "exec {}\n",
      plain_name(name), merge_command(plan, folder), job_command(plan, folder, "\"$run\""));
  RETURN_IF_ERROR(folder.write(kSlurmFile, script));
  std::string commands;
  for (const auto& [first, indexes] : slurm_arrays(plan.runs)) {
    commands += fmt::format("sbatch --array={}{} {} {}\n", indexes, limit,
                            perf::shell_quoted(folder.file(kSlurmFile)), first);
  }
  return fmt::format("{}# and when all {} jobs are done:\n{}\n", commands, plan.runs.size(),
                     merge_command(plan, folder));
}

Result<std::string> emit_parallel(const EmitPlan& plan, const ResultsFolder& folder) {
  std::string commands;
  for (const size_t run : plan.runs) {
    commands += job_command(plan, folder, fmt::format("{}", run)) + "\n";
  }
  RETURN_IF_ERROR(folder.write(kParallelFile, commands));
  const std::string jobs = plan.jobs ? fmt::format(" --jobs {}", *plan.jobs) : "";
  return fmt::format("parallel{} < {}\n{}\n", jobs, perf::shell_quoted(folder.file(kParallelFile)),
                     merge_command(plan, folder));
}

Result<void> write_repro(const ResultsFolder& results, const std::vector<std::string>& argv,
                         const std::string& folder, const std::string& plan) {
  std::string script = fmt::format(
      "#!/bin/sh\n"
      "# Runs this experiment again, into the folder that is given or a new one. These results "
      "are\n"
      "# of pacecar {}, commit {}.\n"
      "# shellcheck disable=SC2016  # variables of the command's own\n"
      "set -eu\n"
      "pacecar=${{PACECAR:-pacecar}}\n"
      "command -v \"$pacecar\" >/dev/null || {{\n"
      "  echo \"error: there is no program $pacecar: put pacecar on PATH, or its path into "
      "PACECAR\" >&2\n"
      "  exit 2\n"
      "}}\n"
      "results=$(cd \"$(dirname \"$0\")\" && pwd)\n",
      build_version(), build_commit());
  if (!plan.empty()) {
    const std::string path = perf::shell_quoted(fs::absolute(plan).string());
    script += fmt::format(
        "cmp -s {} \"$results/plan.toml\" ||\n"
        "  echo 'warning: the plan has changed since; plan.toml is what it was' >&2\n",
        path);
  }
  script += fmt::format("cd {}\n{}exec \"$pacecar\" ab --out \"${{1:-$results.again}}\"",
                        perf::shell_quoted(folder), exports());
  script += " " + perf::shell_line(flags_to_keep(argv)) + "\n";
  RETURN_IF_ERROR(results.write("repro.sh", script));
  using Perms = fs::perms;
  fs::permissions(results.file("repro.sh"),
                  Perms::owner_exec | Perms::group_exec | Perms::others_exec,
                  fs::perm_options::add);
  return {};
}

}  // namespace pacecar::ab
