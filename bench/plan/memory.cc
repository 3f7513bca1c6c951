#include "bench/plan/memory.h"

#include "bench/plan/schedule.h"

namespace pacecar::plan {

HeldParameters held_parameters(const Problem& problem, const Shape& shape, uint32_t stage,
                               uint32_t layers) {
  const LayerParameters layer = layer_parameters(problem.model);
  const double tensor = shape.part_of(stage).tensor;
  HeldParameters held{layers * layer.shared, layers * layer.experts / shape.experts};
  if (stage == 0) held.shared += embedding_parameters(problem.model);
  if (stage + 1 == shape.stages()) held.shared += head_parameters(problem.model);
  if (shape.stages() == 1) held.shared -= shared_parameters(problem.model);
  return {held.shared / tensor, held.experts / tensor};
}

StageMemory stage_memory(const Problem& problem, const Shape& shape, uint32_t stage,
                         uint32_t layers) {
  const Training& training = problem.training;
  const Precision& bytes = training.precision;
  const Part& part = shape.part_of(stage);
  const double tensor = part.tensor;
  const HeldParameters held = held_parameters(problem, shape, stage, layers);
  StageMemory memory{.usable = problem.accelerators[part.kind].memory * training.usable_memory};
  memory.weights = held.all() * (bytes.element + bytes.gradient);
  const double ranks = training.shard_optimizer ? shape.data : 1;
  const double expert_ranks = training.shard_optimizer ? shape.data / shape.experts : 1;
  memory.optimizer = bytes.optimizer * (held.shared / ranks + held.experts / expert_ranks);

  const double tokens = double{1} * shape.micro_batch * problem.model.sequence;
  const double layer = activations(problem.model) * bytes.element * tokens / tensor;
  const double input = problem.model.hidden * bytes.element * tokens / tensor;
  const bool repeated = shape.recompute == Recompute::kFull;
  const double micro_batches = in_flight(stage, shape.stages(), shape.micro_batches(training));
  memory.activations = micro_batches * layers * (repeated ? input : layer);
  if (repeated) memory.activations += layer;
  // The logits, and their gradients in 32 bits.
  if (stage + 1 == shape.stages())
    memory.activations += tokens * problem.model.vocabulary * (bytes.element + 4) / tensor;
  return memory;
}

}  // namespace pacecar::plan
