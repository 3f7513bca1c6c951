// The memory use of an accelerator of a stage, in bytes. Only the items below are counted;
// Training::usable_memory leaves room for the rest of the framework. Pure.
#pragma once

#include "bench/plan/strategy.h"

namespace pacecar::plan {

// The number of parameters on one accelerator.
struct HeldParameters {
  double shared = 0;   // divided by tensor parallelism; each data parallel rank has them
  double experts = 0;  // divided by expert parallelism as well
  double all() const { return shared + experts; }
};
HeldParameters held_parameters(const Problem& problem, const Shape& shape, uint32_t stage,
                               uint32_t layers);

struct StageMemory {
  double weights = 0;  // with their gradients
  double optimizer = 0;
  double activations = 0;  // of all micro-batches in flight, and the working memory of one pass
  double usable = 0;       // by all of these
  double all() const { return weights + optimizer + activations; }
};
// Linear in `layers`. Assumes sequence parallelism where there is tensor parallelism.
StageMemory stage_memory(const Problem& problem, const Shape& shape, uint32_t stage,
                         uint32_t layers);

}  // namespace pacecar::plan
