// The input of `pacecar plan`, from TOML tables: model, training, accelerators, and the network in
// the format of `pacecar predict`. README.md lists the keys.
#pragma once

#include "bench/plan/strategy.h"
#include "bench/sim/spec_value.h"
#include "transport/base/result.h"

namespace pacecar::plan {

// Errors: kInvalidArgument; file, line, cause and cure.
Result<Problem> read_problem(const SpecTable& tables);

}  // namespace pacecar::plan
