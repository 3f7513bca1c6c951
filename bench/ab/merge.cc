#include "bench/ab/merge.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

namespace fs = std::filesystem;

Result<void> copy_detail(const RunRecord& record, const ResultsFolder& from,
                         const ResultsFolder& into) {
  if (record.detail.empty()) return {};
  // A record's own words must not lead out of the folder.
  const fs::path name = fs::path("runs") / fs::path(record.detail).filename();
  std::error_code failed;
  fs::copy_file(from.file(record.detail), into.file(name.string()),
                fs::copy_options::overwrite_existing, failed);
  if (!failed) return {};
  return fail(ErrorCode::kSystem, fmt::format("cannot copy {} to {}: {}", from.file(record.detail),
                                              into.path(), failed.message()));
}

class Merger {
 public:
  explicit Merger(const ResultsFolder& into) : into_(into) {}

  Result<void> add(const std::string& path) {
    ASSIGN_OR_RETURN(const auto folder, ResultsFolder::find(path));
    const auto experiment = folder.read_experiment();
    if (!experiment) return tl::unexpected(experiment.error());
    RETURN_IF_ERROR(check_same(path, *experiment));
    ASSIGN_OR_RETURN(const auto records, folder.read_finished());
    for (const RunRecord& record : records) {
      if (record.index >= results_.experiment.runs()) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("{} has a run {} that its experiment does not have: run it again",
                                folder.records(), record.index));
      }
      const auto known = records_.find(record.index);
      if (known != records_.end() && (known->second.ok || !record.ok)) continue;
      records_[record.index] = record;
      RETURN_IF_ERROR(copy_detail(record, folder, into_));
    }
    return {};
  }

  MergedResults results() {
    for (size_t run = 0; run < results_.experiment.runs(); ++run) {
      const auto found = records_.find(run);
      if (found == records_.end()) {
        results_.missing.push_back(run);
      } else {
        results_.records.push_back(std::move(found->second));
      }
    }
    return std::move(results_);
  }

 private:
  Result<void> check_same(const std::string& path, const Experiment& experiment) {
    if (first_.empty()) {
      first_ = path;
      results_.experiment = experiment;
      return {};
    }
    if (to_json(experiment) == to_json(results_.experiment)) return {};
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} and {} hold results of different experiments: merge those of one "
                            "plan only",
                            first_, path));
  }

  const ResultsFolder& into_;
  std::string first_;
  MergedResults results_;
  std::map<size_t, RunRecord> records_;
};

}  // namespace

Result<MergedResults> merge_results(const std::vector<std::string>& folders,
                                    const ResultsFolder& into) {
  Merger merger(into);
  for (const std::string& folder : folders) {
    RETURN_IF_ERROR(merger.add(folder));
  }
  MergedResults results = merger.results();
  RETURN_IF_ERROR(into.write_experiment(results.experiment));
  RETURN_IF_ERROR(into.write_records(results.records));
  return results;
}

}  // namespace pacecar::ab
