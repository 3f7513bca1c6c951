// One finished run: a line of runs.jsonl.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/ab/experiment.h"

namespace pacecar::ab {

struct RunRecord {
  std::string plan;
  size_t index = 0;  // as Experiment numbers it
  std::string arm;
  std::map<std::string, std::string> factors;  // value by name
  uint64_t seed = 0;
  std::string spec_hash;  // of everything that decides the run's outcome
  bool ok = false;
  std::string error;  // one line, when not ok
  std::map<std::string, double> metrics;
  nlohmann::json counters;  // sums of what NICs and fabric counted
  std::string detail;       // the file with flows and series, relative to the folder; or empty
  double wall_seconds = 0;
  nlohmann::json provenance;  // provenance.h
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunRecord, plan, index, arm, factors, seed, spec_hash, ok, error,
                                   metrics, counters, detail, wall_seconds, provenance)

// A record with the run's identity only.
RunRecord record_of(const Experiment& experiment, size_t run);

std::string to_line(const RunRecord& record);
// Errors: kInvalidArgument.
Result<RunRecord> record_from_line(const std::string& line);

// Appends a line to a runs.jsonl, with a single write.
// Errors: kSystem, naming the file.
Result<void> append_record(const std::string& path, const RunRecord& record);
// Reads a runs.jsonl, sorted by index. Of several records of a run the last one counts. An
// incomplete last line (of a program that was killed) is ignored. Errors: kNotFound,
// kInvalidArgument; file, line, cause.
Result<std::vector<RunRecord>> read_records(const std::string& path);

}  // namespace pacecar::ab
