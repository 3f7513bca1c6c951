// The best split of the layers of one shape, by branch and bound: stage by stage, the lowest bound
// first. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/plan/split_bound.h"

namespace pacecar::plan {

struct SplitResult {
  std::vector<uint32_t> layers;  // by stage; empty: none below the limit was found
  double step_s = 0;
  double bound_s = 0;      // no split below the limit takes less
  uint64_t simulated = 0;  // splits
};

// Looks only for splits that take less than `limit_s`.
SplitResult search_splits(const SplitProblem& problem, const SplitBounds& bounds, double limit_s,
                          double tolerance, uint32_t nodes);

// The time of a step with these layers, which must fit the memory.
double step_s(const SplitProblem& problem, const std::vector<uint32_t>& layers);

}  // namespace pacecar::plan
