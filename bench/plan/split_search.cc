#include "bench/plan/split_search.h"

#include <algorithm>

namespace pacecar::plan {
namespace {

class SplitSearch {
 public:
  SplitSearch(const SplitProblem& problem, const SplitBounds& bounds, double limit_s,
              double tolerance, uint32_t nodes)
      : problem_(problem),
        bounds_(bounds),
        tolerance_(tolerance),
        nodes_left_(nodes),
        prefix_(problem.micro_batches),
        best_s_(limit_s) {}

  SplitResult run() {
    descend(problem_.layers);
    if (!found_.layers.empty()) found_.step_s = best_s_;
    // No split that was left out takes less. If the nodes ran out, only the root's bound holds.
    found_.bound_s = nodes_left_ > 0 ? best_s_ * (1 - tolerance_) : bounds_.root_s();
    found_.bound_s = std::min(std::max(found_.bound_s, bounds_.root_s()), best_s_);
    return found_;
  }

 private:
  struct Child {
    uint32_t layers;
    double bound_s;
  };

  bool useless(double bound_s) const { return bound_s >= best_s_ * (1 - tolerance_); }

  void descend(uint32_t layers_left) {
    const uint32_t stage = prefix_.size();
    if (stage == problem_.stages()) return simulate();
    for (const Child& child : children(stage, layers_left)) {
      if (useless(child.bound_s) || nodes_left_ == 0) return;
      --nodes_left_;
      prefix_.push(problem_.times[stage][child.layers]);
      layers_.push_back(child.layers);
      descend(layers_left - child.layers);
      layers_.pop_back();
      prefix_.pop();
    }
  }

  // The layers that the next stage may have, the lowest bound first.
  std::vector<Child> children(uint32_t stage, uint32_t layers_left) {
    std::vector<Child> ways;
    const uint32_t most = std::min(problem_.most(stage), layers_left);
    for (uint32_t layers = 1; layers <= most; ++layers) {
      prefix_.push(problem_.times[stage][layers]);
      const double bound_s = bounds_.bound_s(prefix_, layers_left - layers);
      prefix_.pop();
      if (!useless(bound_s)) ways.push_back({layers, bound_s});
    }
    std::ranges::stable_sort(ways, {}, &Child::bound_s);
    return ways;
  }

  void simulate() {
    ++found_.simulated;
    const double time_s = step_s(problem_, layers_);
    if (time_s >= best_s_) return;
    best_s_ = time_s;
    found_.layers = layers_;
  }

  const SplitProblem& problem_;
  const SplitBounds& bounds_;
  double tolerance_;
  uint32_t nodes_left_;
  Prefix prefix_;
  std::vector<uint32_t> layers_;
  double best_s_;
  SplitResult found_;
};

}  // namespace

double step_s(const SplitProblem& problem, const std::vector<uint32_t>& layers) {
  std::vector<StageTime> times;
  for (uint32_t stage = 0; stage < problem.stages(); ++stage) {
    times.push_back(problem.times[stage][layers[stage]]);
  }
  return run_schedule(times, problem.micro_batches);
}

SplitResult search_splits(const SplitProblem& problem, const SplitBounds& bounds, double limit_s,
                          double tolerance, uint32_t nodes) {
  return SplitSearch(problem, bounds, limit_s, tolerance, nodes).run();
}

}  // namespace pacecar::plan
