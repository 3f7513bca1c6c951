// The summary as JSON.
#include <nlohmann/json.hpp>

#include "bench/ab/summary.h"
#include "bench/sim/result_json.h"

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
          {"p", optional_json(result.p)},
          {"p_holm", optional_json(result.p_holm)},
          {"verdict", text_of(result.verdict)},
          {"better", optional_json(comparison.better)}};
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
  const Json document = {{"schema_version", kSummaryVersion},
                         {"name", experiment.name},
                         {"baseline", experiment.arms[experiment.baseline].name},
                         {"seeds", experiment.seeds},
                         {"cells", json_list(summary.cells, cell)},
                         {"comparisons", comparisons_json(experiment, summary)},
                         {"thresholds", thresholds_json(experiment, summary)},
                         {"failed", json_list(summary.failed, failed)},
                         {"unfinished", summary.unfinished},
                         {"passed", summary.passed() && summary.failed.empty()}};
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace pacecar::ab
