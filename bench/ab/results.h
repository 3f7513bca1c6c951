// The results of an experiment: a record of each run, and the folder with its files (README.md).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bench/ab/experiment.h"

namespace pacecar::ab {

// One finished run: a line of runs.jsonl.
struct RunRecord {
  std::string plan;
  size_t index = 0;  // as Experiment numbers it
  std::string arm;
  std::map<std::string, std::string> factors;  // value by name
  uint64_t seed = 0;
  std::string spec_hash;  // of everything that decides the run's outcome
  bool ok = false;
  std::string error;  // one line: why it is not ok, or why flows are not done
  std::map<std::string, double> metrics;
  nlohmann::json counters;  // sums of what NICs and fabric counted
  std::string detail;       // the file with flows and series, relative to the folder; or empty
  double wall_seconds = 0;
  nlohmann::json provenance;  // program, machine and settings of the run

  bool done() const { return ok && error.empty(); }
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunRecord, plan, index, arm, factors, seed, spec_hash, ok, error,
                                   metrics, counters, detail, wall_seconds, provenance)

// A record with the run's identity only.
RunRecord record_of(const Experiment& experiment, size_t run);

std::string to_line(const RunRecord& record);
// Errors: kInvalidArgument.
Result<RunRecord> record_from_line(const std::string& line);

struct Results {
  Experiment experiment;
  std::vector<RunRecord> records;  // by run index
};

class ResultsFolder {
 public:
  enum class Existing { kRefuse, kReplace, kResume };
  // Makes the folder. If it already has results, it is refused, emptied or kept.
  // Errors: kInvalidArgument when refused, kSystem.
  static Result<ResultsFolder> open(const std::string& path, Existing existing);
  // An existing folder; nothing is checked.
  explicit ResultsFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const;
  // The name of a run's detail file, relative to the folder and unique.
  static std::string detail_name(const RunRecord& record);

  // Errors: kSystem, naming the file.
  Result<void> write(std::string_view name, std::string_view text) const;
  // Replaces all records written so far.
  Result<void> write_records(const std::vector<RunRecord>& records) const;
  // Appends a record, with a single write.
  Result<void> append(const RunRecord& record) const;

  // By run index; none yet: an empty list. Of several records of a run the last one counts. A
  // killed program's incomplete last line is ignored. Errors: kInvalidArgument; file, line, cause.
  Result<std::vector<RunRecord>> read_records() const;
  // The flows and series of a run; null when there are none.
  nlohmann::json read_detail(const RunRecord& record) const;

 private:
  std::string path_;
};

}  // namespace pacecar::ab
