// Lower bounds of a step's time over all splits of the remaining layers among the remaining stages
// (README.md, Bound). Times in seconds. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "bench/plan/schedule.h"

namespace pacecar::plan {

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

}  // namespace pacecar::plan
