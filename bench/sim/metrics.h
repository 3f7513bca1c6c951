// Single figures of a run, by name, which summaries show and experiments compare. Pure.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "bench/sim/run.h"
#include "bench/sim/run_spec.h"
#include "transport/base/result.h"

namespace pacecar {

enum class Better : uint8_t { kLower, kHigher, kNeither };

struct Metric {
  std::string_view name;  // with its unit as suffix: "fct_p99_us"
  std::string_view unit;  // "us"; "" for a plain number
  std::string_view doc;   // a phrase
  // NaN if the run has no such flow: none of that size, or none done. Null: not of a simulation.
  double (*value)(const RunResult& run) = nullptr;
  Better better = Better::kLower;
  bool of_flows = false;  // computed from flows, so that one job has it, too
};

// In the order in which they are listed.
std::span<const Metric> metrics();

// "fct_p99_us", or "fct_p99_us@victim" for the flows of that job only. Errors: kInvalidArgument,
// with the nearest name.
Result<const Metric*> find_metric(std::string_view name);
// Errors: as find_metric, and for a job that the run does not have.
Result<double> metric_value(const RunResult& run, std::string_view name);

// The value that `percent` of `values` do not exceed (nearest rank); not a number when empty.
double percentile(std::vector<double> values, double percent);
// Jain's index of fairness: 1 when all are equal, 1/n when one has all.
double jain_index(const std::vector<double>& values);

// The flows' shares of common links, compared with max-min fair ones, from samples of
// the receivers' arrivals, if these distinguish the flows (README.md, "Shares"). Rates are of
// payload; so are capacities, without packet overhead.

// Fills FlowResult::share of a run whose flows and rates are known.
void fill_shares(const RunSpec& spec, RunResult& run);

// Jain's index of the rates relative to fair_rate, the least over all windows of 10 base round
// trips in which all flows of `run` send; the first begins a round trip after the last start.
double least_jain(const RunResult& run);

}  // namespace pacecar
