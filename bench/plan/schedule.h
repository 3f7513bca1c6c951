// One step of a pipeline of unequal stages under the schedule 1F1B (PipeDream-Flush; Narayanan et
// al. 2021): each stage runs in_flight() forward passes, then a backward and a forward pass in
// turn. Pure; times in seconds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace pacecar::plan {

struct StageTime {
  double forward_s = 0;  // per micro-batch
  double backward_s = 0;
  double send_s = 0;  // to the next stage, and gradients back; the sender continues meanwhile
  double tail_s = 0;  // after its last backward pass: gradients, optimizer, weights
};

// Micro-batches whose activations a stage holds at most.
constexpr uint32_t in_flight(uint32_t stage, uint32_t stages, uint32_t micro_batches) {
  return std::min(stages - stage, micro_batches);
}

// How long the step takes. Exact: each pass starts as soon as its stage has ended the pass before
// and has its input. Runs in O(stages x micro-batches).
double run_schedule(std::span<const StageTime> stages, uint32_t micro_batches);

}  // namespace pacecar::plan
