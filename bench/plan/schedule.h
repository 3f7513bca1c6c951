// One step of a pipeline under the schedule 1F1B (PipeDream-Flush; Narayanan et al. 2021), with
// stages that differ: each runs so many forward passes ahead, then backward and forward in turn.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace pacecar::plan {

struct StageTime {
  double forward_s = 0;  // per micro-batch
  double backward_s = 0;
  double send_s = 0;  // to the next stage, and gradients back; the sender continues meanwhile
  double tail_s = 0;  // after its last backward pass: gradients, optimizer, weights
};

struct StepTimes {
  double step_s = 0;
  std::vector<double> last_backward_s;  // by stage
};

// Micro-batches whose activations a stage holds at most.
constexpr uint32_t in_flight(uint32_t stage, uint32_t stages, uint32_t micro_batches) {
  return std::min(stages - stage, micro_batches);
}

// Exact: each pass starts as soon as its stage has ended the one before and its input is there.
// Time O(stages x micro-batches).
StepTimes run_schedule(std::span<const StageTime> stages, uint32_t micro_batches);

}  // namespace pacecar::plan
