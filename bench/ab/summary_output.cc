// The summary as JSON, as CSV, and as people read it on a terminal.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/ab/summary.h"
#include "bench/sim/run_output.h"

namespace pacecar::ab {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Description, n, mean, median, min, max)
constexpr int kSummaryVersion = 1;

namespace {

using Json = nlohmann::json;

template <typename Value>
Json optional_json(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

Json comparison_json(const Experiment& experiment, const Comparison& comparison) {
  const PairedResult& result = comparison.result;
  const Cell& cell = experiment.cells[comparison.cell];
  return {{"factors", factors_of(experiment, cell)},
          {"metric", comparison.metric},
          {"arm", experiment.arms[cell.arm].name},
          {"baseline", experiment.arms[experiment.baseline].name},
          {"n", result.n},
          {"arm_mean", result.arm_mean},
          {"baseline_mean", result.baseline_mean},
          {"difference", result.difference},
          {"low", result.interval ? Json(result.interval->low) : Json()},
          {"high", result.interval ? Json(result.interval->high) : Json()},
          {"interval", !result.interval   ? ""
                       : result.bootstrap ? "bootstrap"
                                          : "student"},
          {"ratio", optional_json(comparison.ratio)},
          {"cohens_d", optional_json(result.cohens_d)},
          {"cliffs_delta", optional_json(result.cliffs_delta)},
          {"p", optional_json(result.p)},
          {"p_holm", optional_json(result.p_holm)},
          {"verdict", text_of(result.verdict)},
          {"better", optional_json(comparison.better)}};
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) quoted += letter == '"' ? "\"\"" : std::string(1, letter);
  return quoted + "\"";
}

std::string csv_number(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "";
}

// The columns of a comparison; they are empty for the baseline's cells and other metrics than those
// that are compared.
std::string csv_comparison(const Comparison* comparison) {
  if (comparison == nullptr) return ",,,,,,,";
  const PairedResult& result = comparison->result;
  const std::string interval =
      result.interval ? fmt::format("{},{}", result.interval->low, result.interval->high) : ",";
  return fmt::format(",{},{},{},{},{},{}", result.difference, interval,
                     csv_number(comparison->ratio), csv_number(result.cohens_d),
                     csv_number(result.p_holm), csv_field(std::string(text_of(result.verdict))));
}

const Comparison* find_comparison(const Summary& summary, size_t cell, const std::string& metric) {
  for (const Comparison& comparison : summary.comparisons) {
    if (comparison.cell == cell && comparison.metric == metric) return &comparison;
  }
  return nullptr;
}

// --- text for people ---

constexpr size_t kMaxComparisons = 60;  // more are left to the files
constexpr size_t kMaxFailed = 10;

constexpr std::string_view kGreen = "\033[32m";
constexpr std::string_view kRed = "\033[31m";
constexpr std::string_view kPlain = "\033[0m";

using Row = std::vector<std::string>;

// Aligns a table: the first `left` columns left, the others right. The first row is the heading.
std::string table_text(const std::vector<Row>& rows, size_t left) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i) {
      line += i < left ? fmt::format(" {:<{}}", row[i], widths[i])
                       : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string percent_text(double share) { return fmt::format("{:+.1f}%", share * 100); }

std::string colored(std::string_view color, const std::string& text, bool wanted) {
  return wanted ? fmt::format("{}{}{}", color, text, kPlain) : text;
}

// One line per cell: the means of the metrics that are shown.
std::string cells_text(const Experiment& experiment, const Summary& summary) {
  std::vector<Row> rows;
  Row head = {"arm"};
  for (const Factor& factor : experiment.factors) head.push_back(factor.name);
  const size_t left = head.size();
  head.push_back("n");
  for (const std::string& metric : experiment.shown) head.push_back(metric);
  rows.push_back(head);
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
  const bool few = result.n < kEffectPairs;
  row.push_back(result.cohens_d ? fmt::format("d = {:.2g}", *result.cohens_d)
                : few           ? "d: too few"
                                : "");
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
  if (more > 0) text += fmt::format("  {} more in summary.csv\n", more);
  return text;
}

std::string thresholds_text(const Experiment& experiment, const Summary& summary, bool color) {
  if (summary.thresholds.empty()) return "";
  std::vector<Row> rows;
  for (const ThresholdResult& result : summary.thresholds) {
    const std::string measured = result.measured ? number_text(*result.measured) : "not measured";
    rows.push_back({result.passed ? colored(kGreen, "pass", color) : colored(kRed, "MISS", color),
                    subject_of(experiment, result.threshold),
                    "reference " + result.threshold.expected, measured,
                    result.deviation ? percent_text(*result.deviation) : ""});
  }
  return "\nThresholds: reference, measured, deviation\n" + table_text(rows, 3);
}

std::string failed_text(const Experiment& experiment, const Summary& summary) {
  if (summary.failed.empty()) return "";
  std::string text = "\nFailed runs\n";
  for (size_t i = 0; i < std::min(summary.failed.size(), kMaxFailed); ++i) {
    const RunRecord& record = summary.failed[i];
    text += fmt::format("  {} ({}, seed {}): {}\n", record.index,
                        cell_text(experiment, experiment.cell_of(record.index)), record.seed,
                        record.error);
  }
  if (summary.failed.size() > kMaxFailed) {
    text += fmt::format("  {} more in runs.jsonl\n", summary.failed.size() - kMaxFailed);
  }
  return text;
}

std::string unfinished_text(const Summary& summary) {
  if (summary.unfinished.empty()) return "";
  return fmt::format(
      "\n{} runs reached their time limit before all flows finished. Their figures cover only the "
      "finished flows: raise run.time_limit\n",
      summary.unfinished.size());
}

}  // namespace

Json cell_json(const Experiment& experiment, const CellSummary& summary) {
  const Cell& cell = experiment.cells[summary.cell];
  return {{"arm", experiment.arms[cell.arm].name},
          {"factors", factors_of(experiment, cell)},
          {"runs", summary.runs},
          {"failed", summary.failed},
          {"metrics", summary.metrics}};
}

Json comparisons_json(const Experiment& experiment, const Summary& summary) {
  return json_list(summary.comparisons, [&](const Comparison& comparison) {
    return comparison_json(experiment, comparison);
  });
}

Json thresholds_json(const Experiment& experiment, const Summary& summary) {
  return json_list(summary.thresholds, [&](const ThresholdResult& result) -> Json {
    return {{"text", subject_of(experiment, result.threshold)},
            {"expected", result.threshold.expected},
            {"reference", result.threshold.reference},
            {"measured", optional_json(result.measured)},
            {"deviation", optional_json(result.deviation)},
            {"passed", result.passed}};
  });
}

std::string summary_json(const Experiment& experiment, const Summary& summary) {
  const auto cell = [&](const CellSummary& one) { return cell_json(experiment, one); };
  const auto failed = [](const RunRecord& record) -> Json {
    return {{"index", record.index}, {"error", record.error}};
  };
  const Json json = {{"schema_version", kSummaryVersion},
                     {"name", experiment.name},
                     {"baseline", experiment.arms[experiment.baseline].name},
                     {"seeds", experiment.seeds},
                     {"cells", json_list(summary.cells, cell)},
                     {"comparisons", comparisons_json(experiment, summary)},
                     {"thresholds", thresholds_json(experiment, summary)},
                     {"failed", json_list(summary.failed, failed)},
                     {"unfinished", summary.unfinished},
                     {"passed", summary.passed() && summary.failed.empty()}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string summary_csv(const Experiment& experiment, const Summary& summary) {
  std::string csv = "arm";
  for (const Factor& factor : experiment.factors) csv += "," + csv_field(factor.name);
  csv += ",metric,n,mean,median,min,max,difference,low,high,ratio,cohens_d,p_holm,verdict\n";
  for (const CellSummary& cell_summary : summary.cells) {
    const Cell& cell = experiment.cells[cell_summary.cell];
    std::string names;
    for (const std::string& name : names_of(experiment, cell)) names += csv_field(name) + ",";
    for (const auto& [name, value] : cell_summary.metrics) {
      csv += fmt::format("{}{},{},{},{},{},{}{}\n", names, csv_field(name), value.n, value.mean,
                         value.median, value.min, value.max,
                         csv_comparison(find_comparison(summary, cell_summary.cell, name)));
    }
  }
  return csv;
}

std::string number_text(double value) {
  const double size = std::abs(value);
  return size >= 10'000 && size < 1e15 ? fmt::format("{:.0f}", value)
                                       : fmt::format("{:.5g}", value);
}

std::string summary_text(const Experiment& experiment, const Summary& summary, bool color) {
  return cells_text(experiment, summary) + comparisons_text(experiment, summary) +
         thresholds_text(experiment, summary, color) + unfinished_text(summary) +
         failed_text(experiment, summary);
}

}  // namespace pacecar::ab
