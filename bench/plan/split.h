// Splits of the layers of a shape among its stages: the exact time of one, lower bounds for all,
// and the best one. Pure; times in seconds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace pacecar::plan {

// Times of a stage.
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

// How long one step takes under the schedule 1F1B (PipeDream-Flush; Narayanan et al. 2021): each
// stage runs in_flight() forward passes, then a backward and a forward pass in turn. Exact: each
// pass starts as soon as its stage has ended the pass before and has its input. Runs in O(stages x
// micro-batches).
double run_schedule(std::span<const StageTime> stages, uint32_t micro_batches);

// The time of a split that does not fit.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

// Times of each stage by its layers: [stage][layers], from 1 to the most that fit; [0] unused.
struct SplitProblem {
  std::vector<std::vector<StageTime>> times;
  uint32_t layers = 0;
  uint32_t micro_batches = 1;

  uint32_t stages() const { return static_cast<uint32_t>(times.size()); }
  uint32_t most(uint32_t stage) const { return static_cast<uint32_t>(times[stage].size()) - 1; }
};

// Lower bounds over all splits of the remaining layers among the remaining stages (README.md,
// Bound). The problem must outlive them.
class SplitBounds {
 public:
  explicit SplitBounds(const SplitProblem& problem);

  // The bound of the whole problem; kNever if no split fits.
  double root_s() const { return at(0, problem_.layers).total_s; }
  // After the first stages, which have these layers; `layers_left` are for the others. kNever if
  // they do not fit.
  double bound_s(std::span<const uint32_t> layers, uint32_t layers_left) const;

 private:
  // The least times from the start of a stage's first pass to
  struct Least {
    double trip_s = kNever;   // the end of its backward pass of the first micro-batch
    double ended_s = kNever;  // the end of its last backward pass
    double total_s = kNever;  // the end of the step in it and all later stages
  };

  size_t index(uint32_t stage, uint32_t layers) const {
    return static_cast<size_t>(stage) * (problem_.layers + 1) + layers;
  }
  const Least& at(uint32_t stage, uint32_t layers) const { return least_[index(stage, layers)]; }
  Least least_of(uint32_t stage, uint32_t layers) const;

  const SplitProblem& problem_;
  std::vector<Least> least_;  // by stage, and by the layers for it and all later stages
};

struct SplitResult {
  std::vector<uint32_t> layers;  // by stage; empty: none below the limit was found
  double step_s = 0;
  double bound_s = 0;      // no split below the limit takes less
  uint64_t simulated = 0;  // splits
};

// The best split, by branch and bound: stage by stage, the lowest bound first. Looks only for
// splits that take less than `limit_s`.
SplitResult search_splits(const SplitProblem& problem, const SplitBounds& bounds, double limit_s,
                          double tolerance, uint32_t nodes);

// The time of a step with these layers, which must fit the memory.
double step_s(const SplitProblem& problem, const std::vector<uint32_t>& layers);

}  // namespace pacecar::plan
