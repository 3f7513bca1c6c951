#include "bench/plan/split_bound.h"

#include <algorithm>

namespace pacecar::plan {
namespace {

// How many round trips to the last stage follow one another: a stage starts a micro-batch only when
// the one in_flight() before it has come back.
double round_trips(uint32_t stage, uint32_t stages, uint32_t micro_batches) {
  const uint32_t held = in_flight(stage, stages, micro_batches);
  return static_cast<double>((micro_batches + held - 1) / held);
}

double pass_s(const StageTime& time) { return time.forward_s + time.backward_s; }

}  // namespace

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

}  // namespace pacecar::plan
