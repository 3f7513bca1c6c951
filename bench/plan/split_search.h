// The best split of the layers of one shape: branch and bound, stage by stage, the most promising
// first.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/plan/split_bound.h"

namespace pacecar::plan {

struct SplitResult {
  std::vector<uint32_t> layers;  // by stage; empty: none below the limit was found
  double step_s = 0;
  double bound_s = 0;  // no split takes less, or less than the limit
  uint64_t simulated = 0;
};

// `limit_s`: splits that take as long are of no use.
SplitResult search_splits(const SplitProblem& problem, const SplitBounds& bounds, double limit_s,
                          double tolerance, uint32_t nodes);

// The step's time under the schedule; the split fits the memory.
double step_s(const SplitProblem& problem, const std::vector<uint32_t>& layers);

}  // namespace pacecar::plan
