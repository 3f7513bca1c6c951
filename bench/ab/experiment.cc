#include "bench/ab/experiment.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "bench/sim/spec_reader.h"
#include "transport/base/invalid.h"

namespace pacecar::ab {

using nlohmann::json;

NLOHMANN_JSON_SERIALIZE_ENUM(Experiment::Kind, {{Experiment::Kind::kSimulation, "simulation"},
                                                {Experiment::Kind::kPrograms, "programs"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Cell, arm, values)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Threshold, metric, cell, versus, of, median, low, high,
                                   reference, expected)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Experiment, kind, name, description, arms, factors, seeds,
                                   baseline, shown, cells, thresholds)

namespace {

constexpr int kExperimentVersion = 1;

// The file may come from anywhere: its indices must be within its lists.
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

std::map<std::string, std::string> factors_of(const Experiment& experiment, const Cell& cell) {
  const std::vector<std::string> names = names_of(experiment, cell);
  std::map<std::string, std::string> factors;
  for (size_t i = 0; i < experiment.factors.size(); ++i) {
    factors[experiment.factors[i].name] = names[i + 1];
  }
  return factors;
}

std::vector<std::string> names_of(const Experiment& experiment, const Cell& cell) {
  std::vector<std::string> names{experiment.arms[cell.arm].name};
  for (size_t i = 0; i < cell.values.size(); ++i) {
    names.push_back(experiment.factors[i].values[cell.values[i]]);
  }
  return names;
}

std::string cell_text(const Experiment& experiment, const Cell& cell) {
  std::string text = experiment.arms[cell.arm].name;
  for (size_t i = 0; i < experiment.factors.size(); ++i) {
    const Factor& factor = experiment.factors[i];
    text += fmt::format(", {} = {}", factor.name, factor.values[cell.values[i]]);
  }
  return text;
}

std::optional<size_t> partner(const Experiment& experiment, const Cell& cell, size_t arm) {
  const auto& cells = experiment.cells;
  const auto found = std::find(cells.begin(), cells.end(), Cell{arm, cell.values});
  if (found == cells.end()) return std::nullopt;
  return static_cast<size_t>(found - cells.begin());
}

json json_of(const Experiment& experiment) {
  json document = experiment;
  document["schema_version"] = kExperimentVersion;
  return document;
}

Result<Experiment> experiment_from_json(json document) {
  try {
    if (document.at("schema_version") != kExperimentVersion) {
      return invalid("another version of pacecar wrote it");
    }
    // JSON has no infinity: a bound that a threshold does not have was written as null.
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (json& threshold : document.at("thresholds")) {
      if (threshold.at("low").is_null()) threshold["low"] = -kInfinity;
      if (threshold.at("high").is_null()) threshold["high"] = kInfinity;
    }
    auto experiment = document.get<Experiment>();
    if (consistent(experiment)) return experiment;
    return invalid("its parts do not fit together");
  } catch (const json::exception& error) {
    return fail(ErrorCode::kInvalidArgument, error.what());
  }
}

Result<std::vector<size_t>> filter_runs(const Experiment& experiment,
                                        const std::vector<std::string>& filters) {
  std::vector<std::string_view> names = {"arm", "seed"};
  for (const Factor& factor : experiment.factors) names.push_back(factor.name);
  for (const std::string& filter : filters) {
    const std::string name = filter.substr(0, filter.find('='));
    if (name != filter && std::ranges::find(names, name) != names.end()) continue;
    return invalid("--filter {} makes no sense{}: write NAME=VALUE with one of {}", filter,
                   did_you_mean(name, names), fmt::join(names, ", "));
  }
  std::vector<size_t> runs;
  for (size_t run = 0; run < experiment.runs(); ++run) {
    const Cell& cell = experiment.cell_of(run);
    std::map<std::string, std::string> values = factors_of(experiment, cell);
    values["arm"] = experiment.arms[cell.arm].name;
    values["seed"] = std::to_string(experiment.seed_of(run));
    const bool kept = std::ranges::all_of(filters, [&](const std::string& filter) {
      const size_t equals = filter.find('=');
      const std::string& value = values.at(filter.substr(0, equals));
      return fnmatch(filter.c_str() + equals + 1, value.c_str(), 0) == 0;
    });
    if (kept) runs.push_back(run);
  }
  if (!runs.empty()) return runs;
  return invalid("--filter leaves no run: see 'pacecar ab PLAN --list' for what there is");
}

}  // namespace pacecar::ab
