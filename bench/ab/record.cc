#include "bench/ab/record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "bench/perf/json_fields.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/invalid.h"

namespace pacecar::ab {
namespace {

using nlohmann::json;

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

}  // namespace pacecar::ab
