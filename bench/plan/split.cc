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

double run_schedule(std::span<const StageTime> stages, uint32_t micro_batches) {
  const auto count = static_cast<uint32_t>(stages.size());
  using Ends = std::vector<std::vector<double>>;  // by stage and micro-batch
  Ends forward(count, std::vector<double>(micro_batches));
  Ends backward = forward;
  // In round r a stage that is the n-th from the end runs backward pass r - n, then forward pass r.
  // So each pass comes after those that it waits for.
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

void Prefix::push(const StageTime& time) {
  Stage now{.time = time, .busy_s = micro_batches_ * pass_s(time)};
  if (!stages_.empty()) {
    const Stage& before = stages_.back();
    const StageTime& passed = before.time;
    now.start_s = before.start_s + passed.forward_s + passed.send_s;
    now.trip_s = before.trip_s + pass_s(passed) + 2 * passed.send_s;
    now.after_s = before.after_s + passed.send_s + passed.backward_s;
  }
  now.after_s = std::max(now.after_s, time.tail_s);
  stages_.push_back(now);
}

SplitBounds::SplitBounds(const SplitProblem& problem)
    : layers_(problem.layers),
      stages_(problem.stages()),
      micro_batches_(problem.micro_batches),
      trip_(index(stages_ + 1, 0), kNever),
      ended_(trip_),
      total_(trip_) {
  for (uint32_t stage = stages_; stage-- > 0;) {
    for (uint32_t layers = stages_ - stage; layers <= layers_; ++layers) {
      fill(problem, stage, layers);
    }
  }
}

void SplitBounds::fill(const SplitProblem& problem, uint32_t stage, uint32_t layers) {
  const size_t here = index(stage, layers);
  const bool last = stage + 1 == stages_;
  const double trips = round_trips(stage, stages_, micro_batches_);
  const uint32_t after = stages_ - stage - 1;  // stages that need a layer each
  const uint32_t most = std::min(problem.most(stage), layers - after);
  for (uint32_t own = last ? layers : 1; own <= most; ++own) {
    const StageTime& time = problem.times[stage][own];
    double trip = pass_s(time);
    double ended = micro_batches_ * pass_s(time);
    double rest = 0;
    if (!last) {
      const size_t next = index(stage + 1, layers - own);
      const double there_and_back = pass_s(time) + 2 * time.send_s;
      trip = there_and_back + trip_[next];
      ended = std::max(ended, there_and_back + ended_[next]);
      rest = time.forward_s + time.send_s + total_[next];
    }
    ended = std::max(ended, trips * trip);
    trip_[here] = std::min(trip_[here], trip);
    ended_[here] = std::min(ended_[here], ended);
    total_[here] = std::min(total_[here], std::max(ended + time.tail_s, rest));
  }
}

double SplitBounds::bound_s(const Prefix& prefix, uint32_t layers_left) const {
  const uint32_t stage = prefix.size();
  if (stage == 0) return root_s();
  const Prefix::Stage& last = prefix.stages_.back();
  const StageTime& passed = last.time;
  if (stage == stages_) {
    if (layers_left > 0) return kNever;
  } else if (total(stage, layers_left) == kNever) {
    return kNever;
  }
  // Relative to the start of the first of the remaining stages.
  double trip_left = 0;
  double bound = 0;
  const double trip_to = last.trip_s + pass_s(passed);
  if (stage < stages_) {
    const size_t left = index(stage, layers_left);
    const double start = last.start_s + passed.forward_s + passed.send_s;
    bound = std::max(start + total_[left],
                     start + ended_[left] + passed.send_s + passed.backward_s + last.after_s);
    trip_left = 2 * passed.send_s + trip_[left];
  }
  for (uint32_t i = 0; i < stage; ++i) {
    const Prefix::Stage& each = prefix.stages_[i];
    const double trip = trip_to - each.trip_s + trip_left;
    const double ended = std::max(each.busy_s, round_trips(i, stages_, micro_batches_) * trip);
    bound = std::max(bound, each.start_s + ended + each.after_s);
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
