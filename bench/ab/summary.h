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
  bool passed = false;
};

struct Summary {
  std::vector<CellSummary> cells;  // those with a record
  // Of the metrics that are shown; their p-values are corrected together.
  std::vector<Comparison> comparisons;
  std::vector<ThresholdResult> thresholds;  // of cells with a record
  std::vector<RunRecord> failed;
  std::vector<size_t> unfinished;  // runs that ended at their time limit with flows not done

  bool passed() const { return std::ranges::all_of(thresholds, &ThresholdResult::passed); }
};

// `records` are of `experiment`, sorted by index.
Summary summarise(const Experiment& experiment, const std::vector<RunRecord>& records);

// "finish_us of nscc, matrix = inc32".
std::string subject_of(const Experiment& experiment, const Threshold& threshold);

nlohmann::json cell_json(const Experiment& experiment, const CellSummary& cell);
nlohmann::json comparisons_json(const Experiment& experiment, const Summary& summary);
nlohmann::json thresholds_json(const Experiment& experiment, const Summary& summary);
// summary.json.
std::string summary_json(const Experiment& experiment, const Summary& summary);
// As people read it on a terminal. `color`: with escape sequences.
std::string summary_text(const Experiment& experiment, const Summary& summary, bool color);
// At most five significant digits, no exponent where it can be avoided.
std::string number_text(double value);

}  // namespace pacecar::ab
