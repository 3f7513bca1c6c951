// The summary of an experiment's records: figures per cell, paired differences from the baseline,
// thresholds. Pure; it does not depend on the order in which runs ended, nor on their folder.
#pragma once

#include <algorithm>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/ab/experiment.h"
#include "bench/ab/results.h"
#include "bench/ab/statistics.h"

namespace pacecar::ab {

struct CellSummary {
  size_t cell = 0;
  std::vector<size_t> runs;  // their indices
  size_t failed = 0;
  std::map<std::string, Description> metrics;
};

struct Comparison {
  size_t cell = 0;
  size_t baseline_cell = 0;
  std::string metric;
  PairedResult result;
  std::optional<double> ratio;  // of the means; none if the baseline's is 0
  std::optional<bool> better;   // where the difference is shown and the metric has a direction
};

struct ThresholdResult {
  Threshold threshold;
  std::optional<double> measured;   // none: no run of the cell has the metric
  std::optional<double> deviation;  // relative to the reference; none if that is 0
  size_t undone = 0;                // runs of its cells that failed or did not finish
  bool passed = false;              // only without such runs
};

struct Summary {
  size_t runs = 0;
  std::vector<CellSummary> cells;  // those with a record
  // Of the metrics that are shown; their p-values are corrected together.
  std::vector<Comparison> comparisons;
  std::vector<ThresholdResult> thresholds;  // of cells with a record
  std::vector<RunRecord> undone;            // that failed, or left flows undone at their time limit
  std::vector<std::vector<size_t>> equals;  // arms with equal results in all runs

  size_t failed() const {
    return static_cast<size_t>(std::ranges::count(undone, false, &RunRecord::ok));
  }
  bool passed() const {
    return undone.empty() && std::ranges::all_of(thresholds, &ThresholdResult::passed);
  }
};

// `records` are of `experiment`, sorted by index.
Summary summarise(const Experiment& experiment, const std::vector<RunRecord>& records);

// "finish_us of nscc, matrix = inc32".
std::string subject_of(const Experiment& experiment, const Threshold& threshold);

// "'a' and 'b' are identical in all runs: ...".
std::string equals_text(const Experiment& experiment, const std::vector<size_t>& arms);
// "2 of 8 runs failed, 1 did not finish: ...".
std::string undone_text(const Summary& summary);

nlohmann::json cell_json(const Experiment& experiment, const CellSummary& cell);
nlohmann::json comparisons_json(const Experiment& experiment, const Summary& summary);
nlohmann::json thresholds_json(const Experiment& experiment, const Summary& summary);
nlohmann::json equals_json(const Experiment& experiment, const Summary& summary);
// summary.json.
std::string summary_json(const Experiment& experiment, const Summary& summary);
// As people read it on a terminal. `color`: with escape sequences.
std::string summary_text(const Experiment& experiment, const Summary& summary, bool color);
// At most five significant digits, no exponent where it can be avoided.
std::string number_text(double value);

}  // namespace pacecar::ab
