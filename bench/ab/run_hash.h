// Tells whether two runs are the same: what decides a run's outcome, as 16 hexadecimal digits.
#pragma once

#include <string>

#include "bench/sim/run_spec.h"
#include "bench/sim/spec_value.h"

namespace pacecar::ab {

// Of the spec's tables, the topology and workload that they (and the files that they name) gave,
// the seed, and the program's commit. Pure.
std::string run_hash(const SpecTable& tables, const RunSpec& spec);

}  // namespace pacecar::ab
