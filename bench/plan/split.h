// Splits of the layers of a shape among its stages: the exact time of one, lower bounds for all,
// and the best one. Pure; times in seconds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace pacecar::plan {

// Of a stage.
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

// Times of each stage by its layers: [stage][layers], from 1 to what its memory holds; [0] unused.
struct SplitProblem {
  std::vector<std::vector<StageTime>> times;
  uint32_t layers = 0;
  uint32_t micro_batches = 1;

  uint32_t stages() const { return static_cast<uint32_t>(times.size()); }
  uint32_t most(uint32_t stage) const { return static_cast<uint32_t>(times[stage].size()) - 1; }
};

// The first stages of a split, whose layers are decided.
class Prefix {
 public:
  explicit Prefix(uint32_t micro_batches) : micro_batches_(micro_batches) {}

  void push(const StageTime& time);
  void pop() { stages_.pop_back(); }
  uint32_t size() const { return static_cast<uint32_t>(stages_.size()); }

 private:
  friend class SplitBounds;
  struct Stage {
    StageTime time;
    double start_s = 0;  // earliest start of its first forward pass
    double busy_s = 0;   // sum of all its passes
    double trip_s = 0;   // of a micro-batch through the stages before it and back
    double after_s = 0;  // from its last backward pass to the end of the step
  };

  uint32_t micro_batches_;
  std::vector<Stage> stages_;
};

// Lower bounds over all splits of the remaining layers among the remaining stages (README.md,
// Bound).
class SplitBounds {
 public:
  explicit SplitBounds(const SplitProblem& problem);

  // Of the whole problem; kNever if no split fits.
  double root_s() const { return total(0, layers_); }
  // After a prefix that leaves so many layers; kNever if they do not fit.
  double bound_s(const Prefix& prefix, uint32_t layers_left) const;

 private:
  double total(uint32_t stage, uint32_t layers) const { return total_[index(stage, layers)]; }
  size_t index(uint32_t stage, uint32_t layers) const {
    return static_cast<size_t>(stage) * (layers_ + 1) + layers;
  }
  void fill(const SplitProblem& problem, uint32_t stage, uint32_t layers);

  uint32_t layers_;
  uint32_t stages_;
  uint32_t micro_batches_;
  // By stage, and by the layers for it and all later stages: the least time from the start of its
  // first pass to
  std::vector<double> trip_;   // the end of its backward pass of the first micro-batch
  std::vector<double> ended_;  // the end of its last backward pass
  std::vector<double> total_;  // the end of the step in all of these stages
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
