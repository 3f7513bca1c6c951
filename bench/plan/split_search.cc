#include "bench/plan/split_search.h"

#include <algorithm>

namespace pacecar::plan {
namespace {

// `best_s`: of the best split so far, or the limit.
struct SplitSearch {
  const SplitProblem& problem;
  const SplitBounds& bounds;
  double best_s;
  double tolerance;
  uint32_t nodes_left;
  Prefix prefix{problem.micro_batches};
  std::vector<uint32_t> layers = {};
  SplitResult found = {};

  SplitResult run() {
    descend(problem.layers);
    if (!found.layers.empty()) found.step_s = best_s;
    // No split that was left out takes less. If the nodes ran out, only the root's bound holds.
    found.bound_s = nodes_left > 0 ? best_s * (1 - tolerance) : bounds.root_s();
    found.bound_s = std::min(std::max(found.bound_s, bounds.root_s()), best_s);
    return found;
  }

  struct Child {
    uint32_t layers;
    double bound_s;
  };

  bool useless(double bound_s) const { return bound_s >= best_s * (1 - tolerance); }

  void descend(uint32_t layers_left) {
    const uint32_t stage = prefix.size();
    if (stage == problem.stages()) return simulate();
    for (const Child& child : children(stage, layers_left)) {
      if (useless(child.bound_s) || nodes_left == 0) return;
      --nodes_left;
      prefix.push(problem.times[stage][child.layers]);
      layers.push_back(child.layers);
      descend(layers_left - child.layers);
      layers.pop_back();
      prefix.pop();
    }
  }

  // The layers that the next stage may have, the lowest bound first.
  std::vector<Child> children(uint32_t stage, uint32_t layers_left) {
    std::vector<Child> ways;
    const uint32_t most = std::min(problem.most(stage), layers_left);
    for (uint32_t own = 1; own <= most; ++own) {
      prefix.push(problem.times[stage][own]);
      const double bound_s = bounds.bound_s(prefix, layers_left - own);
      prefix.pop();
      if (!useless(bound_s)) ways.push_back({own, bound_s});
    }
    std::ranges::stable_sort(ways, {}, &Child::bound_s);
    return ways;
  }

  void simulate() {
    ++found.simulated;
    const double time_s = step_s(problem, layers);
    if (time_s >= best_s) return;
    best_s = time_s;
    found.layers = layers;
  }
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
  return SplitSearch{problem, bounds, limit_s, tolerance, nodes}.run();
}

}  // namespace pacecar::plan
