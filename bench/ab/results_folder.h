// The folder with an experiment's results: README.md lists its files.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bench/ab/experiment.h"
#include "bench/ab/record.h"

namespace pacecar::ab {

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

}  // namespace pacecar::ab
