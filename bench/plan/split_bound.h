// Lower bounds of a step's time over all ways to divide the layers that are left among the stages
// that are left. They hold for every split, whatever the pipeline does between (README.md, Bound).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "bench/plan/schedule.h"

namespace pacecar::plan {

// Of what does not fit.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

// Times of each stage by its layers: [stage][layers], from 1 to what its memory holds; [0] unused.
struct SplitProblem {
  std::vector<std::vector<StageTime>> times;
  uint32_t layers = 0;
  uint32_t micro_batches = 1;

  uint32_t stages() const { return static_cast<uint32_t>(times.size()); }
  uint32_t most(uint32_t stage) const { return static_cast<uint32_t>(times[stage].size()) - 1; }
};

// The first stages have been decided; what they imply.
class Prefix {
 public:
  explicit Prefix(uint32_t micro_batches) : micro_batches_(micro_batches) {}

  void push(const StageTime& time);
  void pop() { stages_.pop_back(); }
  uint32_t size() const { return static_cast<uint32_t>(stages_.size()); }

 private:
  friend class SplitBounds;
  struct Stage {
    double start_s;  // of its first forward pass, at the earliest
    double busy_s;   // of all its passes
    double trip_s;   // of a micro-batch from the first stage through it and back
    double after_s;  // from its last backward pass to the end of the step
  };

  uint32_t micro_batches_;
  std::vector<Stage> stages_;
  std::vector<StageTime> times_;
};

class SplitBounds {
 public:
  explicit SplitBounds(const SplitProblem& problem);

  // Of the whole problem; infinite where no split fits.
  double root_s() const { return total(0, layers_); }
  // After a prefix that leaves so many layers; infinite where they do not fit.
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
  // By stage and layers for it and all after it, the least time from the start of its first pass to
  std::vector<double> trip_;   // the end of the first micro-batch's backward pass there
  std::vector<double> ended_;  // the end of its last backward pass
  std::vector<double> total_;  // the end of what comes after, in all of these stages
};

}  // namespace pacecar::plan
