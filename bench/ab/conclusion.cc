#include "bench/ab/conclusion.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/ab/report/report.h"
#include "bench/ab/report_data.h"
#include "bench/ab/summary.h"
#include "bench/ab/summary_text.h"

namespace pacecar::ab {

Result<ExitCode> conclude(const Experiment& experiment, const std::vector<RunRecord>& records,
                          const ResultsFolder& folder, bool color) {
  const Summary summary = summarise(experiment, records);
  std::fputs(summary_text(experiment, summary, color).c_str(), stdout);
  auto kept = folder.write_experiment(experiment);
  if (kept) kept = folder.write("summary.json", summary_json(experiment, summary));
  if (kept) kept = folder.write("summary.csv", summary_csv(experiment, summary));
  if (kept) {
    kept =
        write_report(report_data(experiment, summary, records, folder), folder.file("report.html"));
  }
  if (!kept) return tl::unexpected(kept.error());
  if (!summary.failed.empty()) return kError;
  return summary.passed() ? kPassed : kThresholdMissed;
}

}  // namespace pacecar::ab
