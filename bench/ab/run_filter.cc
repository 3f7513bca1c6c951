#include "bench/ab/run_filter.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "bench/ab/record.h"
#include "bench/sim/spec_reader.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

struct Condition {
  std::string name;
  std::string pattern;
};

Result<Condition> parse_condition(const std::string& text, const Experiment& experiment) {
  std::vector<std::string_view> names = {"arm", "seed"};
  for (const Factor& factor : experiment.factors) names.push_back(factor.name);
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  if (equals != std::string::npos && std::find(names.begin(), names.end(), name) != names.end()) {
    return Condition{name, text.substr(equals + 1)};
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--filter {} makes no sense{}: write NAME=VALUE with one of {}", text,
                          did_you_mean(name, names), fmt::join(names, ", ")));
}

bool holds(const Condition& condition, const RunRecord& run) {
  std::string value = condition.name == "arm" ? run.arm : std::to_string(run.seed);
  for (const auto& [factor, text] : run.factors) {
    if (factor == condition.name) value = text;
  }
  return fnmatch(condition.pattern.c_str(), value.c_str(), 0) == 0;
}

}  // namespace

Result<std::vector<size_t>> filter_runs(const Experiment& experiment,
                                        const std::vector<std::string>& filters) {
  std::vector<Condition> conditions;
  for (const std::string& filter : filters) {
    for (size_t begin = 0; begin <= filter.size();) {
      const size_t end = std::min(filter.find(',', begin), filter.size());
      ASSIGN_OR_RETURN(auto condition,
                       parse_condition(filter.substr(begin, end - begin), experiment));
      conditions.push_back(std::move(condition));
      begin = end + 1;
    }
  }
  std::vector<size_t> runs;
  for (size_t run = 0; run < experiment.runs(); ++run) {
    const RunRecord record = record_of(experiment, run);
    const bool kept = std::all_of(conditions.begin(), conditions.end(),
                                  [&](const Condition& each) { return holds(each, record); });
    if (kept) runs.push_back(run);
  }
  if (!runs.empty()) return runs;
  return fail(ErrorCode::kInvalidArgument,
              "--filter leaves no run: see 'pacecar ab PLAN --list' for what there is");
}

}  // namespace pacecar::ab
