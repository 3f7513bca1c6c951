#include "bench/ab/merge.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

namespace fs = std::filesystem;

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

}  // namespace

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

}  // namespace pacecar::ab
