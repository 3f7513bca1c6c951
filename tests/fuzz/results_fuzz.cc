// A runs.jsonl of any content, as `pacecar ab --resume` reads it: no crash, and every record can be
// written and read again.
#include <unistd.h>

#include <filesystem>

#include "bench/ab/results.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"

namespace pacecar::ab::results_fuzz {
namespace {

class Folder {
 public:
  Folder() { std::filesystem::create_directories(path_); }
  ~Folder() { std::filesystem::remove_all(path_); }
  ResultsFolder results() const { return ResultsFolder(path_); }

 private:
  std::string path_ =
      std::filesystem::temp_directory_path() / ("results_fuzz." + std::to_string(::getpid()));
};

}  // namespace

FUZZ_TARGET(results) {
  static const Folder folder;
  const ResultsFolder results = folder.results();
  if (!results.write("runs.jsonl", fuzz::Input(data, size).text())) return 0;
  const auto records = results.read_records();
  if (!records) return 0;
  for (const RunRecord& record : *records) {
    PACECAR_CHECK(record_from_line(to_line(record)).has_value());
  }
  return 0;
}

}  // namespace pacecar::ab::results_fuzz
