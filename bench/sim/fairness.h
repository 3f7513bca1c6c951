// The flows' shares of common links, compared with max-min (max_min.h), from samples of the
// receivers' arrivals.
//
// There are such figures where samples can tell flows apart: all flows of the run are watched
// ([run] sample_series), no two of them go from the same process to the same other, and samples are
// at most a quarter of the base round trip apart. A flow runs from its start until its receiver has
// all of it. Rates are of payload; capacities are what links leave for payload.
#pragma once

#include "bench/sim/run_result.h"
#include "bench/sim/run_spec.h"

namespace pacecar {

// Fills FlowResult::share of a run whose flows and rates are known.
void fill_shares(const RunSpec& spec, RunResult& run);

// The least index of fairness, over any 10 base round trips in which all flows of `run` are under
// way, of their rates relative to fair_rate; windows begin a round trip after the last start.
double least_jain(const RunResult& run);

}  // namespace pacecar
