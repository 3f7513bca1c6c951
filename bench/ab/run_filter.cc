#include "bench/ab/run_filter.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "bench/ab/record.h"
#include "bench/sim/spec_reader.h"
#include "transport/base/invalid.h"

namespace pacecar::ab {
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
    const RunRecord record = record_of(experiment, run);
    std::map<std::string, std::string> values = record.factors;
    values["arm"] = record.arm;
    values["seed"] = std::to_string(record.seed);
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
