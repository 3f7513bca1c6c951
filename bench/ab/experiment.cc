#include "bench/ab/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace pacecar::ab {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kExperimentVersion = 1;

// JSON has no infinity: an absent bound is null.
Json bound_json(double bound) { return std::isinf(bound) ? Json() : Json(bound); }

double bound_from(const Json& json, double absent) {
  return json.is_null() ? absent : json.get<double>();
}

Json threshold_json(const Threshold& threshold) {
  return {{"metric", threshold.metric},         {"cell", threshold.cell},
          {"versus", threshold.versus},         {"of", static_cast<int>(threshold.of)},
          {"median", threshold.median},         {"low", bound_json(threshold.low)},
          {"high", bound_json(threshold.high)}, {"reference", threshold.reference},
          {"expected", threshold.expected}};
}

Threshold threshold_from(const Json& json) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Threshold threshold;
  json.at("metric").get_to(threshold.metric);
  json.at("cell").get_to(threshold.cell);
  json.at("versus").get_to(threshold.versus);
  threshold.of = static_cast<Threshold::Of>(json.at("of").get<int>());
  json.at("median").get_to(threshold.median);
  threshold.low = bound_from(json.at("low"), -kInfinity);
  threshold.high = bound_from(json.at("high"), kInfinity);
  json.at("reference").get_to(threshold.reference);
  json.at("expected").get_to(threshold.expected);
  return threshold;
}

Experiment parse(const Json& json) {
  Experiment experiment;
  experiment.kind =
      json.at("kind") == "programs" ? Experiment::Kind::kPrograms : Experiment::Kind::kSimulation;
  json.at("name").get_to(experiment.name);
  json.at("description").get_to(experiment.description);
  for (const Json& arm : json.at("arms")) {
    experiment.arms.push_back({arm.at("name"), arm.at("settings")});
  }
  for (const Json& factor : json.at("factors")) {
    experiment.factors.push_back({factor.at("name"), factor.at("values")});
  }
  json.at("seeds").get_to(experiment.seeds);
  json.at("baseline").get_to(experiment.baseline);
  json.at("shown").get_to(experiment.shown);
  for (const Json& cell : json.at("cells")) {
    experiment.cells.push_back({cell.at("arm"), cell.at("values")});
  }
  for (const Json& threshold : json.at("thresholds")) {
    experiment.thresholds.push_back(threshold_from(threshold));
  }
  return experiment;
}

// The file may come from anywhere: its indices are held against its lists.
bool consistent(const Experiment& experiment) {
  const auto cell_fits = [&](const Cell& cell) {
    if (cell.arm >= experiment.arms.size()) return false;
    return std::equal(cell.values.begin(), cell.values.end(), experiment.factors.begin(),
                      experiment.factors.end(), [](size_t value, const Factor& factor) {
                        return value < factor.values.size();
                      });
  };
  const auto threshold_fits = [&](const Threshold& threshold) {
    return threshold.cell < experiment.cells.size() && threshold.versus < experiment.cells.size();
  };
  return !experiment.seeds.empty() && experiment.baseline < experiment.arms.size() &&
         std::all_of(experiment.cells.begin(), experiment.cells.end(), cell_fits) &&
         std::all_of(experiment.thresholds.begin(), experiment.thresholds.end(), threshold_fits);
}

}  // namespace

std::string factors_text(const Experiment& experiment, const Cell& cell) {
  std::string text;
  for (size_t i = 0; i < experiment.factors.size(); ++i) {
    const Factor& factor = experiment.factors[i];
    text += fmt::format("{}{} = {}", i > 0 ? ", " : "", factor.name, factor.values[cell.values[i]]);
  }
  return text;
}

std::string cell_text(const Experiment& experiment, const Cell& cell) {
  const std::string factors = factors_text(experiment, cell);
  return experiment.arms[cell.arm].name + (factors.empty() ? "" : ", " + factors);
}

std::optional<size_t> partner(const Experiment& experiment, const Cell& cell, size_t arm) {
  const auto& cells = experiment.cells;
  const auto found = std::find(cells.begin(), cells.end(), Cell{arm, cell.values});
  if (found == cells.end()) return std::nullopt;
  return static_cast<size_t>(found - cells.begin());
}

Json to_json(const Experiment& experiment) {
  Json cells = Json::array();
  for (const Cell& cell : experiment.cells) {
    cells.push_back({{"arm", cell.arm}, {"values", cell.values}});
  }
  Json thresholds = Json::array();
  for (const Threshold& threshold : experiment.thresholds) {
    thresholds.push_back(threshold_json(threshold));
  }
  const bool programs = experiment.kind == Experiment::Kind::kPrograms;
  return {{"schema_version", kExperimentVersion},
          {"kind", programs ? "programs" : "simulation"},
          {"name", experiment.name},
          {"description", experiment.description},
          {"arms", experiment.arms},
          {"factors", experiment.factors},
          {"seeds", experiment.seeds},
          {"baseline", experiment.baseline},
          {"shown", experiment.shown},
          {"cells", cells},
          {"thresholds", thresholds}};
}

Result<Experiment> experiment_from_json(const Json& json) {
  try {
    if (json.at("schema_version") != kExperimentVersion) {
      return fail(ErrorCode::kInvalidArgument, "another version of pacecar wrote it");
    }
    Experiment experiment = parse(json);
    if (consistent(experiment)) return experiment;
    return fail(ErrorCode::kInvalidArgument, "its parts do not fit together");
  } catch (const Json::exception& error) {
    return fail(ErrorCode::kInvalidArgument, error.what());
  }
}

}  // namespace pacecar::ab
