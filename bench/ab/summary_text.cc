// The summary as people read it on a terminal.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "bench/ab/summary.h"
#include "bench/cli/console.h"

namespace pacecar::ab {
namespace {

constexpr size_t kMaxComparisons = 60;  // more are left to the files
constexpr size_t kMaxUndone = 10;

constexpr std::string_view kGreen = "\033[32m";
constexpr std::string_view kRed = "\033[31m";
constexpr std::string_view kPlain = "\033[0m";

using Row = std::vector<std::string>;

// The first `left` columns left, the others right.
std::string table_text(const std::vector<Row>& rows, size_t left) {
  return fmt::format("  {}\n", fmt::join(cli::aligned(rows, left), "\n  "));
}

std::string percent_text(double share) { return fmt::format("{:+.1f}%", share * 100); }

std::string colored(std::string_view color, const std::string& text, bool wanted) {
  return wanted ? fmt::format("{}{}{}", color, text, kPlain) : text;
}

// One line per cell: the means of the metrics that are shown.
std::string cells_text(const Experiment& experiment, const Summary& summary) {
  Row head = {"arm"};
  for (const Factor& factor : experiment.factors) head.push_back(factor.name);
  const size_t left = head.size();
  head.push_back("n");
  head.insert(head.end(), experiment.shown.begin(), experiment.shown.end());
  std::vector<Row> rows = {head};
  for (const CellSummary& cell_summary : summary.cells) {
    Row row = names_of(experiment, experiment.cells[cell_summary.cell]);
    row.push_back(fmt::format("{}", cell_summary.runs.size() - cell_summary.failed));
    for (const std::string& metric : experiment.shown) {
      const auto found = cell_summary.metrics.find(metric);
      row.push_back(found == cell_summary.metrics.end() ? "-" : number_text(found->second.mean));
    }
    rows.push_back(row);
  }
  return table_text(rows, left);
}

std::string verdict_text(const Comparison& comparison) {
  std::string text(text_of(comparison.result.verdict));
  if (comparison.better) text += *comparison.better ? " (better)" : " (worse)";
  return text;
}

Row comparison_row(const Experiment& experiment, const Comparison& comparison) {
  const PairedResult& result = comparison.result;
  Row row = {cell_text(experiment, experiment.cells[comparison.cell]), comparison.metric,
             verdict_text(comparison), fmt::format("n = {}", result.n),
             number_text(result.difference)};
  row.push_back(result.interval
                    ? fmt::format("[{}, {}]{}", number_text(result.interval->low),
                                  number_text(result.interval->high), result.bootstrap ? "" : " t")
                    : "");
  row.push_back(comparison.ratio ? percent_text(*comparison.ratio - 1) : "");
  row.push_back(result.p_holm ? fmt::format("p = {:.2g}", *result.p_holm) : "");
  row.push_back(result.cohens_d ? fmt::format("d = {:.2g}", *result.cohens_d) : "");
  return row;
}

std::string comparisons_text(const Experiment& experiment, const Summary& summary) {
  if (summary.comparisons.empty()) return "";
  const auto tested = std::ranges::count_if(
      summary.comparisons, [](const Comparison& one) { return one.result.p.has_value(); });
  std::string text = fmt::format(
      "\nDifferences from {}: means over pairs; 95% intervals by bootstrap (marked t: Student's, "
      "n < {}); p corrected by Holm for {} tests\n",
      experiment.arms[experiment.baseline].name, kBootstrapPairs, tested);
  std::vector<Row> rows;
  const size_t shown = std::min(summary.comparisons.size(), kMaxComparisons);
  for (size_t i = 0; i < shown; ++i) {
    rows.push_back(comparison_row(experiment, summary.comparisons[i]));
  }
  text += table_text(rows, 3);
  const size_t more = summary.comparisons.size() - shown;
  if (more > 0) text += fmt::format("  {} more in summary.json\n", more);
  return text;
}

std::string thresholds_text(const Experiment& experiment, const Summary& summary, bool color) {
  if (summary.thresholds.empty()) return "";
  std::vector<Row> rows;
  for (const ThresholdResult& result : summary.thresholds) {
    const std::string measured = result.measured ? number_text(*result.measured) : "not measured";
    rows.push_back({result.passed   ? colored(kGreen, "pass", color)
                    : result.undone ? colored(kRed, "NOT DONE", color)
                                    : colored(kRed, "MISS", color),
                    subject_of(experiment, result.threshold),
                    "reference " + result.threshold.expected, measured,
                    result.passed || !result.deviation ? "" : percent_text(*result.deviation)});
  }
  return "\nThresholds: bound, measured, off by\n" + table_text(rows, 3);
}

std::string undone_runs_text(const Experiment& experiment, const Summary& summary) {
  if (summary.undone.empty()) return "";
  std::string text = undone_text(summary) + "\n";
  for (size_t i = 0; i < std::min(summary.undone.size(), kMaxUndone); ++i) {
    const RunRecord& record = summary.undone[i];
    text += fmt::format("  {} ({}, seed {}): {}\n", record.index,
                        cell_text(experiment, experiment.cell_of(record.index)), record.seed,
                        record.error);
  }
  if (summary.undone.size() > kMaxUndone) {
    text += fmt::format("  {} more in runs.jsonl\n", summary.undone.size() - kMaxUndone);
  }
  return text + "\n";
}

}  // namespace

std::string number_text(double value) {
  const double size = std::abs(value);
  return size >= 10'000 && size < 1e15 ? fmt::format("{:.0f}", value)
                                       : fmt::format("{:.5g}", value);
}

std::string equals_text(const Experiment& experiment, const std::vector<size_t>& arms) {
  std::vector<std::string> names;
  for (const size_t arm : arms) names.push_back(fmt::format("'{}'", experiment.arms[arm].name));
  return fmt::format(
      "{} are identical in all runs: their settings are equal, or what differs has no effect here",
      fmt::join(names, " and "));
}

std::string undone_text(const Summary& summary) {
  const size_t failed = summary.failed();
  return fmt::format(
      "{} of {} runs failed, {} did not finish: their figures are missing or of a part, and no "
      "threshold over them is met",
      failed, summary.runs, summary.undone.size() - failed);
}

std::string summary_text(const Experiment& experiment, const Summary& summary, bool color) {
  return undone_runs_text(experiment, summary) + cells_text(experiment, summary) +
         comparisons_text(experiment, summary) + thresholds_text(experiment, summary, color);
}

}  // namespace pacecar::ab
