// The thresholds of a plan: what a metric of some cells must be, by itself or beside another arm.
#pragma once

#include "bench/ab/experiment.h"
#include "bench/sim/spec_value.h"
#include "transport/base/result.h"

namespace pacecar::ab {

// Reads one [[threshold]] and appends a threshold for each cell that it is about. Errors:
// kInvalidArgument.
Result<void> read_threshold(const SpecValue& table, Experiment& experiment);

}  // namespace pacecar::ab
