// The memory use of a stage's accelerator. Pure. Bytes; only the items below are counted, and
// Training::usable_memory leaves room for the rest of the framework.
#pragma once

#include "bench/plan/strategy.h"

namespace pacecar::plan {

// Parameters on one accelerator.
struct HeldParameters {
  double shared = 0;   // divided by tensor parallelism; each data parallel rank has them
  double experts = 0;  // divided by expert parallelism, too
  double all() const { return shared + experts; }
};
HeldParameters held_parameters(const Problem& problem, const Shape& shape, uint32_t stage,
                               uint32_t layers);

struct StageMemory {
  double weights = 0;  // with their gradients
  double optimizer = 0;
  double activations = 0;  // of all micro-batches in flight, and what one pass needs beside them
  double all() const { return weights + optimizer + activations; }
};
// Grows with `layers`, evenly. Sequence parallelism goes with tensor parallelism.
StageMemory stage_memory(const Problem& problem, const Shape& shape, uint32_t stage,
                         uint32_t layers);

double usable_memory(const Problem& problem, uint32_t kind);

}  // namespace pacecar::plan
