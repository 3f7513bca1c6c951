#include "bench/ab/results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "bench/cli/files.h"
#include "bench/cli/json_fields.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kRecords = "runs.jsonl";
constexpr const char* kFiles[] = {kRecords, "plan.toml", "summary.json", "report.html"};
constexpr const char* kDetails = "runs";
constexpr int kRecordVersion = 1;

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
  return cli::json_line(document);
}

Result<RunRecord> record_from_line(const std::string& line) {
  const json document = cli::parse_json(line);
  if (document.is_discarded()) return invalid("it is no JSON");
  try {
    return document.get<RunRecord>();
  } catch (const json::exception& error) {
    return fail(ErrorCode::kInvalidArgument, error.what());
  }
}

Result<ResultsFolder> ResultsFolder::open(const std::string& path, Existing existing) {
  const ResultsFolder folder(path);
  std::error_code failed;
  if (existing == Existing::kRefuse && fs::exists(folder.file(kRecords), failed)) {
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
  if (!failed) return folder;
  return fail(ErrorCode::kSystem, fmt::format("cannot make {}: {}: choose another folder with "
                                              "--out",
                                              folder.file(kDetails), failed.message()));
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
  RETURN_IF_ERROR(cli::write_text(unfinished, text));
  std::error_code failed;
  fs::rename(unfinished, path, failed);
  if (!failed) return {};
  return fail(ErrorCode::kSystem, fmt::format("cannot replace {}: {}: choose another folder with "
                                              "--out",
                                              path, failed.message()));
}

Result<void> ResultsFolder::write_records(const std::vector<RunRecord>& records) const {
  std::string text;
  for (const RunRecord& record : records) text += to_line(record);
  return write(kRecords, text);
}

Result<void> ResultsFolder::append(const RunRecord& record) const {
  const std::string path = file(kRecords);
  const std::string line = to_line(record);
  const FileDescriptor out(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  // One write: after a crash a line is there or not. A short one sets no errno.
  if (out) errno = ENOSPC;
  const bool written =
      out && ::write(out.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size());
  if (written) return {};
  return fail(ErrorCode::kSystem,
              fmt::format("cannot write {}: {}: make room, or choose another folder with --out",
                          path, std::strerror(errno)));
}

Result<std::vector<RunRecord>> ResultsFolder::read_records() const {
  std::ifstream lines(file(kRecords));
  std::map<size_t, RunRecord> latest;
  std::string line;
  for (size_t number = 1; std::getline(lines, line); ++number) {
    auto record = record_from_line(line);
    if (!record) {
      if (lines.eof()) break;  // no line end: unfinished
      return invalid("{}, line {}: {}: remove the line, and run it again with --resume",
                     file(kRecords), number, record.error().message);
    }
    latest[record->index] = std::move(*record);
  }
  std::vector<RunRecord> records;
  for (auto& [index, record] : latest) records.push_back(std::move(record));
  return records;
}

json ResultsFolder::read_detail(const RunRecord& record) const {
  if (record.detail.empty()) return {};
  const auto text = cli::read_text(file(record.detail));
  json detail = cli::parse_json(text.value_or(""));
  return detail.is_discarded() ? json() : detail;
}

}  // namespace pacecar::ab
