// A results folder of any content: the first line of the input is its experiment.json, the other
// lines are its runs.jsonl. `pacecar ab` merges it, sums it up and reports it: no crash, and every
// record can be written and read again.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/ab/report_data.h"
#include "bench/ab/results.h"
#include "bench/ab/summary.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"

namespace pacecar::ab::results_fuzz {
namespace {

class Folders {
 public:
  Folders()
      : root_(std::filesystem::temp_directory_path() /
              ("results_fuzz." + std::to_string(::getpid()))) {
    std::filesystem::create_directories(theirs());
  }
  ~Folders() { std::filesystem::remove_all(root_); }
  std::string theirs() const { return root_ / "theirs"; }
  std::string ours() const { return root_ / "ours"; }
  void put(const char* name, std::string_view text) const {
    std::ofstream(theirs() + "/" + name, std::ios::binary) << text;
  }

 private:
  std::filesystem::path root_;
};

void sum_up(const Results& results, const ResultsFolder& folder) {
  const Summary summary = summarise(results.experiment, results.records);
  static_cast<void>(summary_text(results.experiment, summary, false));
  static_cast<void>(summary_json(results.experiment, summary));
  static_cast<void>(summary_csv(results.experiment, summary));
  static_cast<void>(report_data(results.experiment, summary, results.records, folder));
  for (const RunRecord& record : results.records) {
    PACECAR_CHECK(record_from_line(to_line(record)).has_value());
  }
}

}  // namespace

FUZZ_TARGET(results) {
  static const Folders folders;
  const std::string_view text = fuzz::Input(data, size).text();
  const size_t end = text.find('\n');
  folders.put("experiment.json", text.substr(0, end));
  folders.put("runs.jsonl", end == text.npos ? "" : text.substr(end + 1));
  const auto ours = ab::ResultsFolder::open(folders.ours(), ab::ResultsFolder::Existing::kReplace);
  const auto merged = ab::merge_results({folders.theirs()}, *ours);
  if (merged) sum_up(*merged, *ours);
  return 0;
}

}  // namespace pacecar::ab::results_fuzz
