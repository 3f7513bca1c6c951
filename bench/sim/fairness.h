// The flows' shares of common links, compared with max-min fair ones (max_min.h), from samples of
// the receivers' arrivals. Pure.
//
// A run has these figures if samples distinguish its flows: all flows are sampled ([run]
// sample_series), no two of them have the same source and destination, and samples are at most a
// quarter of the base round trip apart. A flow runs from its start until its receiver has all of
// it. Rates are of payload; so are capacities, without packet overhead.
#pragma once

#include "bench/sim/run_result.h"
#include "bench/sim/run_spec.h"

namespace pacecar {

// Fills FlowResult::share of a run whose flows and rates are known.
void fill_shares(const RunSpec& spec, RunResult& run);

// Jain's index of the rates relative to fair_rate, the least over all windows of 10 base round
// trips in which all flows of `run` are under way; the first begins a round trip after the last
// start.
double least_jain(const RunResult& run);

}  // namespace pacecar
