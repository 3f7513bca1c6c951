#include "bench/plan/split.h"

namespace pacecar::plan {
namespace {

// How many round trips to the last stage follow one another: a stage starts a micro-batch only when
// the one in_flight() before it has come back.
double round_trips(uint32_t stage, uint32_t stages, uint32_t micro_batches) {
  const uint32_t held = in_flight(stage, stages, micro_batches);
  return static_cast<double>((micro_batches + held - 1) / held);
}

double pass_s(const StageTime& time) { return time.forward_s + time.backward_s; }

// What the stages before one add to its times.
struct Before {
  double start_s = 0;  // until its first forward pass at the earliest
  double trip_s = 0;   // of a micro-batch through them and back
  double after_s = 0;  // from its last backward pass to the end of their steps

  void add(const StageTime& stage) {
    start_s += stage.forward_s + stage.send_s;
    trip_s += pass_s(stage) + 2 * stage.send_s;
    after_s = std::max(after_s, stage.tail_s) + stage.send_s + stage.backward_s;
  }
};

// `best_s`: of the best split so far, or the limit.
struct SplitSearch {
  const SplitProblem& problem;
  const SplitBounds& bounds;
  double best_s;
  double tolerance;
  uint32_t nodes_left;
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
    if (layers.size() == problem.stages()) return simulate();
    for (const Child& child : children(layers_left)) {
      if (useless(child.bound_s) || nodes_left == 0) return;
      --nodes_left;
      layers.push_back(child.layers);
      descend(layers_left - child.layers);
      layers.pop_back();
    }
  }

  // The layers that the next stage may have, the lowest bound first.
  std::vector<Child> children(uint32_t layers_left) {
    std::vector<Child> all;
    const auto stage = static_cast<uint32_t>(layers.size());
    const uint32_t most = std::min(problem.most(stage), layers_left);
    layers.push_back(0);
    for (uint32_t own = 1; own <= most; ++own) {
      layers.back() = own;
      const double bound_s = bounds.bound_s(layers, layers_left - own);
      if (!useless(bound_s)) all.push_back({own, bound_s});
    }
    layers.pop_back();
    std::ranges::stable_sort(all, {}, &Child::bound_s);
    return all;
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

double run_schedule(std::span<const StageTime> stages, uint32_t micro_batches) {
  const auto count = static_cast<uint32_t>(stages.size());
  using Ends = std::vector<std::vector<double>>;  // by stage and micro-batch
  Ends forward(count, std::vector<double>(micro_batches));
  Ends backward = forward;
  // In round r a stage that is the n-th from the end runs backward pass r - n, then forward pass r.
  // So each pass comes after the passes that it waits for.
  for (uint32_t round = 0; round < micro_batches + count; ++round) {
    for (uint32_t s = 0; s < count; ++s) {
      const StageTime& time = stages[s];
      const uint32_t ahead = in_flight(s, count, micro_batches);
      const uint32_t m = round - (count - s);
      if (round >= count - s && m < micro_batches) {
        const bool more = m + ahead < micro_batches + 1;
        const double free_s = more ? forward[s][m + ahead - 1] : backward[s][m - 1];
        const double input_s = s + 1 < count ? backward[s + 1][m] + time.send_s : 0;
        backward[s][m] = std::max(free_s, input_s) + time.backward_s;
      }
      if (round >= micro_batches) continue;
      const double free_s = round >= ahead ? backward[s][round - ahead]
                            : round > 0    ? forward[s][round - 1]
                                           : 0;
      const double input_s = s > 0 ? forward[s - 1][round] + stages[s - 1].send_s : 0;
      forward[s][round] = std::max(free_s, input_s) + time.forward_s;
    }
  }
  double step_s = 0;
  for (uint32_t s = 0; s < count; ++s) {
    step_s = std::max(step_s, backward[s].back() + stages[s].tail_s);
  }
  return step_s;
}

SplitBounds::SplitBounds(const SplitProblem& problem)
    : problem_(problem), least_(index(problem.stages() + 1, 0)) {
  for (uint32_t stage = problem.stages(); stage-- > 0;) {
    for (uint32_t layers = problem.stages() - stage; layers <= problem.layers; ++layers) {
      least_[index(stage, layers)] = least_of(stage, layers);
    }
  }
}

SplitBounds::Least SplitBounds::least_of(uint32_t stage, uint32_t layers) const {
  const uint32_t after = problem_.stages() - stage - 1;  // stages that need a layer each
  const double trips = round_trips(stage, problem_.stages(), problem_.micro_batches);
  const uint32_t most = std::min(problem_.most(stage), layers - after);
  Least least;
  for (uint32_t own = after == 0 ? layers : 1; own <= most; ++own) {
    const StageTime& time = problem_.times[stage][own];
    double trip = pass_s(time);
    double ended = problem_.micro_batches * pass_s(time);
    double rest = 0;
    if (after > 0) {
      const Least& next = at(stage + 1, layers - own);
      const double there_and_back = pass_s(time) + 2 * time.send_s;
      trip = there_and_back + next.trip_s;
      ended = std::max(ended, there_and_back + next.ended_s);
      rest = time.forward_s + time.send_s + next.total_s;
    }
    ended = std::max(ended, trips * trip);
    least.trip_s = std::min(least.trip_s, trip);
    least.ended_s = std::min(least.ended_s, ended);
    least.total_s = std::min(least.total_s, std::max(ended + time.tail_s, rest));
  }
  return least;
}

double SplitBounds::bound_s(std::span<const uint32_t> layers, uint32_t layers_left) const {
  const auto decided = static_cast<uint32_t>(layers.size());
  const auto time_of = [&](uint32_t stage) -> const StageTime& {
    return problem_.times[stage][layers[stage]];
  };
  Before all;
  for (uint32_t stage = 0; stage < decided; ++stage) all.add(time_of(stage));
  double bound = 0;
  double trip = all.trip_s;
  if (decided < problem_.stages()) {
    const Least& left = at(decided, layers_left);
    if (left.total_s == kNever) return kNever;
    bound = all.start_s + std::max(left.total_s, left.ended_s + all.after_s);
    trip += left.trip_s;
  } else {
    if (layers_left > 0) return kNever;
    trip -= 2 * time_of(decided - 1).send_s;  // to nobody
  }
  Before before;
  for (uint32_t stage = 0; stage < decided; ++stage) {
    const StageTime& time = time_of(stage);
    const double trips = round_trips(stage, problem_.stages(), problem_.micro_batches);
    const double ended =
        std::max(problem_.micro_batches * pass_s(time), trips * (trip - before.trip_s));
    bound = std::max(bound, before.start_s + ended + std::max(before.after_s, time.tail_s));
    before.add(time);
  }
  return bound;
}

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
