#include "bench/ab/experiment.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "bench/sim/spec_reader.h"
#include "transport/base/edit_distance.h"
#include "transport/base/invalid.h"

namespace pacecar::ab {

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
