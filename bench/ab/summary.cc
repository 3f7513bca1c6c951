#include "bench/ab/summary.h"

#include <cmath>
#include <utility>

#include "bench/ab/output_parser.h"

namespace pacecar::ab {
namespace {

// The runs of each cell that ended well, by their place among the seeds.
using Samples = std::vector<std::map<size_t, const RunRecord*>>;

// Groups of arms whose runs have equal metrics, apart from the wall-clock time.
std::vector<std::vector<size_t>> equal_arms(const Experiment& experiment,
                                            const std::vector<RunRecord>& records) {
  using Runs = std::map<std::pair<std::vector<size_t>, uint64_t>, std::map<std::string, double>>;
  std::vector<Runs> runs(experiment.arms.size());
  for (const RunRecord& record : records) {
    const Cell& cell = experiment.cell_of(record.index);
    auto metrics = record.metrics;
    metrics.erase("wall_s");
    if (!metrics.empty()) runs[cell.arm][{cell.values, record.seed}] = std::move(metrics);
  }
  std::map<Runs, std::vector<size_t>> groups;
  for (size_t arm = 0; arm < runs.size(); ++arm) groups[runs[arm]].push_back(arm);
  std::vector<std::vector<size_t>> equals;
  for (const auto& [same, arms] : groups) {
    if (!same.empty() && arms.size() > 1) equals.push_back(arms);
  }
  return equals;
}

std::optional<double> metric_of(const RunRecord& record, const std::string& metric) {
  const auto found = record.metrics.find(metric);
  return found == record.metrics.end() ? std::nullopt : std::optional(found->second);
}

std::map<std::string, Description> describe_all(const std::map<size_t, const RunRecord*>& runs) {
  std::map<std::string, std::vector<double>> samples;
  for (const auto& [seed, record] : runs) {
    for (const auto& [name, value] : record->metrics) samples[name].push_back(value);
  }
  std::map<std::string, Description> descriptions;
  for (const auto& [name, values] : samples) descriptions[name] = describe(values);
  return descriptions;
}

// Both runs of each seed that has both.
struct Pairs {
  std::vector<double> arm;
  std::vector<double> baseline;
};

Pairs pairs_of(const std::map<size_t, const RunRecord*>& arm,
               const std::map<size_t, const RunRecord*>& baseline, const std::string& metric) {
  Pairs pairs;
  for (const auto& [seed, record] : arm) {
    const auto other = baseline.find(seed);
    if (other == baseline.end()) continue;
    const auto ours = metric_of(*record, metric);
    const auto theirs = metric_of(*other->second, metric);
    if (!ours || !theirs) continue;
    pairs.arm.push_back(*ours);
    pairs.baseline.push_back(*theirs);
  }
  return pairs;
}

std::optional<double> ratio_of(double value, double base) {
  return base == 0 ? std::nullopt : std::optional(value / base);
}

// After the family's correction.
void set_better(Comparison& comparison) {
  const Better better = metric_info(comparison.metric).better;
  const PairedResult& result = comparison.result;
  const bool shown = result.verdict == Verdict::kLower || result.verdict == Verdict::kHigher ||
                     result.verdict == Verdict::kConstant;
  if (!shown || better == Better::kNeither) return;
  comparison.better = (result.difference < 0) == (better == Better::kLower);
}

// `undone`: runs that are not done, by cell.
std::vector<Comparison> compare_all(const Experiment& experiment, const Samples& samples,
                                    const std::vector<size_t>& undone) {
  std::vector<Comparison> comparisons;
  for (size_t cell = 0; cell < experiment.cells.size(); ++cell) {
    if (experiment.cells[cell].arm == experiment.baseline) continue;
    const auto base = partner(experiment, experiment.cells[cell], experiment.baseline);
    if (!base) continue;
    for (const std::string& metric : experiment.shown) {
      const Pairs pairs = pairs_of(samples[cell], samples[*base], metric);
      if (pairs.arm.empty()) continue;
      Comparison comparison{cell, *base, metric, compare_pairs(pairs.arm, pairs.baseline), {}, {}};
      comparison.ratio = ratio_of(comparison.result.arm_mean, comparison.result.baseline_mean);
      comparisons.push_back(std::move(comparison));
    }
  }
  std::vector<PairedResult*> family;
  for (Comparison& comparison : comparisons) family.push_back(&comparison.result);
  correct_family(family);
  for (Comparison& comparison : comparisons) {
    if (undone[comparison.cell] + undone[comparison.baseline_cell] == 0) set_better(comparison);
  }
  return comparisons;
}

std::optional<double> measure_difference(const Threshold& threshold, const Pairs& pairs) {
  const auto compared = [&](double ours, double theirs) -> std::optional<double> {
    if (threshold.of == Threshold::Of::kDifference) return ours - theirs;
    return ratio_of(ours, theirs);
  };
  if (pairs.arm.empty()) return std::nullopt;
  if (!threshold.median) {
    return compared(describe(pairs.arm).mean, describe(pairs.baseline).mean);
  }
  std::vector<double> values;
  for (size_t i = 0; i < pairs.arm.size(); ++i) {
    const auto value = compared(pairs.arm[i], pairs.baseline[i]);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return describe(values).median;
}

std::optional<double> measure(const Threshold& threshold, const Samples& samples) {
  if (threshold.of != Threshold::Of::kValue) {
    return measure_difference(
        threshold, pairs_of(samples[threshold.cell], samples[threshold.versus], threshold.metric));
  }
  const auto described = describe_all(samples[threshold.cell]);
  const auto found = described.find(threshold.metric);
  if (found == described.end()) return std::nullopt;
  return threshold.median ? found->second.median : found->second.mean;
}

// Runs that are not done have figures of a part only, so no threshold over them is met.
ThresholdResult judge(const Threshold& threshold, const Samples& samples, size_t undone) {
  ThresholdResult result{threshold, measure(threshold, samples), {}, undone, false};
  if (!result.measured) return result;
  result.passed =
      undone == 0 && *result.measured >= threshold.low && *result.measured <= threshold.high;
  if (threshold.reference != 0) {
    result.deviation = (*result.measured - threshold.reference) / std::abs(threshold.reference);
  }
  return result;
}

}  // namespace

Summary summarise(const Experiment& experiment, const std::vector<RunRecord>& records) {
  Summary summary;
  Samples samples(experiment.cells.size());
  std::vector<CellSummary> cells(experiment.cells.size());
  std::vector<size_t> undone(experiment.cells.size());
  for (const RunRecord& record : records) {
    const size_t cell = record.index / experiment.seeds.size();
    cells[cell].runs.push_back(record.index);
    if (record.ok) samples[cell][record.index % experiment.seeds.size()] = &record;
    if (record.done()) continue;
    cells[cell].failed += record.ok ? 0 : 1;
    ++undone[cell];
    summary.undone.push_back(record);
  }
  for (size_t cell = 0; cell < cells.size(); ++cell) {
    if (cells[cell].runs.empty()) continue;
    cells[cell].cell = cell;
    cells[cell].metrics = describe_all(samples[cell]);
    summary.cells.push_back(cells[cell]);
  }
  summary.runs = records.size();
  summary.comparisons = compare_all(experiment, samples, undone);
  summary.equals = equal_arms(experiment, records);
  for (const Threshold& threshold : experiment.thresholds) {
    const bool compares = threshold.of != Threshold::Of::kValue;
    const bool ran =
        !cells[threshold.cell].runs.empty() && (!compares || !cells[threshold.versus].runs.empty());
    const size_t missing = undone[threshold.cell] + (compares ? undone[threshold.versus] : 0);
    if (ran) summary.thresholds.push_back(judge(threshold, samples, missing));
  }
  return summary;
}

std::string subject_of(const Experiment& experiment, const Threshold& threshold) {
  return threshold.metric + " of " + cell_text(experiment, experiment.cells[threshold.cell]);
}

}  // namespace pacecar::ab
