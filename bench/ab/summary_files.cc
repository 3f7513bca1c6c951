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
            {"undone", result.undone},
            {"passed", result.passed}};
  });
}

// [{arms [name], text}].
Json equals_json(const Experiment& experiment, const Summary& summary) {
  Json list = Json::array();
  for (const std::vector<size_t>& group : summary.equals) {
    const auto name = [&](size_t arm) { return Json(experiment.arms[arm].name); };
    list.push_back({{"arms", json_list(group, name)}, {"text", equals_text(experiment, group)}});
  }
  return list;
}

std::string summary_json(const Experiment& experiment, const Summary& summary) {
  const auto cell = [&](const CellSummary& one) { return cell_json(experiment, one); };
  Json failed = Json::array();
  Json unfinished = Json::array();
  for (const RunRecord& record : summary.undone) {
    (record.ok ? unfinished : failed).push_back({{"index", record.index}, {"error", record.error}});
  }
  const Json document = {{"schema_version", kSummaryVersion},
                         {"name", experiment.name},
                         {"baseline", experiment.arms[experiment.baseline].name},
                         {"seeds", experiment.seeds},
                         {"cells", json_list(summary.cells, cell)},
                         {"comparisons", comparisons_json(experiment, summary)},
                         {"thresholds", thresholds_json(experiment, summary)},
                         {"failed", failed},
                         {"unfinished", unfinished},
                         {"identical", equals_json(experiment, summary)},
                         {"passed", summary.passed()}};
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace pacecar::ab
