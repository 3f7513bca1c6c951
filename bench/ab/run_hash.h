// Whether two runs are the same: a hash of everything that decides a run's outcome.
#pragma once

#include <string>

#include "bench/sim/run_spec.h"
#include "bench/sim/spec_value.h"

namespace pacecar::ab {

// 16 hexadecimal digits, of the spec's tables, the topology and workload that were made of them
// (and of the files that they name), the seed, and the program's commit. Pure.
std::string run_hash(const SpecTable& tables, const RunSpec& spec);

}  // namespace pacecar::ab
