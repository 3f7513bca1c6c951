// The folder with an experiment's results: README.md lists its files.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
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
  std::string records() const { return file("runs.jsonl"); }
  // The name of a run's detail file, relative to the folder and unique.
  static std::string detail_name(const RunRecord& record);

  // Errors: kSystem, naming the file.
  Result<void> write(std::string_view name, std::string_view text) const;
  Result<void> write_experiment(const Experiment& experiment) const;
  // Replaces all records written so far.
  Result<void> write_records(const std::vector<RunRecord>& records) const;

  // Errors: kNotFound where the folder holds no results, kInvalidArgument where they are
  // unreadable.
  Result<Experiment> read_experiment() const;
  // None yet: an empty list.
  Result<std::vector<RunRecord>> read_finished() const;
  // The flows and series of a run; null when there are none.
  nlohmann::json read_detail(const RunRecord& record) const;

 private:
  std::string path_;
};

// Joins the results of one experiment that was run in several folders.
struct MergedResults {
  Experiment experiment;
  std::vector<RunRecord> records;  // by run index
  std::vector<size_t> missing;     // runs that no folder has
};

// Writes records, and each run's detail file, into `into`. If several folders have the same run, a
// successful one counts. Errors: kNotFound for a folder without results; kInvalidArgument for
// unreadable ones, those of another experiment, or a run that it does not have; kSystem.
Result<MergedResults> merge_results(const std::vector<std::string>& folders,
                                    const ResultsFolder& into);

// The runs of an experiment as jobs of other schedulers: Slurm job arrays, or a file of commands
// for GNU parallel. Each job is one run in its own folder; `pacecar ab merge` joins them.

struct EmitPlan {
  std::string program;  // the path of `pacecar`
  std::string plan;     // the path of the plan's file
  std::vector<size_t> runs;
  std::optional<uint64_t> seed;
  std::optional<size_t> jobs;  // at once, of each array; none: as many as the scheduler allows
};

// "0-4,7": as Slurm takes it. `runs` is sorted and not empty.
std::string index_ranges(const std::vector<size_t>& runs);

struct SlurmArray {
  size_t first;         // the run of index 0
  std::string indexes;  // "0-4,7"
};

// Divides the runs into arrays with indexes that every Slurm allows. `runs` is sorted.
std::vector<SlurmArray> slurm_arrays(const std::vector<size_t>& runs);

// Each writes its file into the folder and returns the commands to enter next.
// Errors: kSystem.
Result<std::string> emit_slurm(const EmitPlan& plan, const std::string& name,
                               const ResultsFolder& folder);
Result<std::string> emit_parallel(const EmitPlan& plan, const ResultsFolder& folder);

// Writes repro.sh, a script that makes the results again. `argv` ("ab", ...) is the command line;
// it ran in `folder` with `plan` (a path, or empty for programs). Errors: kSystem.
Result<void> write_repro(const ResultsFolder& results, const std::vector<std::string>& argv,
                         const std::string& folder, const std::string& plan);

}  // namespace pacecar::ab
