// The planner against enumeration: schedules pass by pass, splits and shapes one by one.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

#include "bench/plan/search.h"
#include "bench/plan/split.h"
#include "bench/plan/stage_costs.h"
#include "tests/support/draws.h"

namespace pacecar::plan::search_property {
namespace {

constexpr double kRounding = 1e-9;

// Uniform over the whole range, in the first cases too.
uint32_t whole(uint32_t min, uint32_t max) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(min, max + 1));
}
double real(double min, double max) { return min + (max - min) * whole(0, 1000) / 1000; }

StageTime any_stage() {
  return {.forward_s = real(0.1, 2),
          .backward_s = real(0.1, 4),
          .send_s = real(0, 0.5),
          .tail_s = real(0, 3)};
}

// The same schedule computed another way: as lists of passes, relaxed until no pass starts before
// its stage and its input are ready.
double relaxed_step_s(const std::vector<StageTime>& stages, uint32_t micro_batches) {
  struct Pass {
    bool forward;
    uint32_t micro_batch;
  };
  const size_t count = stages.size();
  std::vector<std::vector<Pass>> order(count);
  for (size_t s = 0; s < count; ++s) {
    const auto warm_up = std::min<uint32_t>(static_cast<uint32_t>(count - s) - 1, micro_batches);
    for (uint32_t m = 0; m < warm_up; ++m) order[s].push_back({true, m});
    for (uint32_t m = 0; m + warm_up < micro_batches; ++m) {
      order[s].push_back({true, m + warm_up});
      order[s].push_back({false, m});
    }
    for (uint32_t m = micro_batches - warm_up; m < micro_batches; ++m)
      order[s].push_back({false, m});
  }
  std::map<std::tuple<size_t, bool, uint32_t>, double> end;
  double step = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t s = 0; s < count; ++s) {
      double free = 0;
      for (const Pass& pass : order[s]) {
        const StageTime& time = stages[s];
        double input = 0;
        if (pass.forward && s > 0)
          input = end[{s - 1, true, pass.micro_batch}] + stages[s - 1].send_s;
        if (!pass.forward && s + 1 < count)
          input = end[{s + 1, false, pass.micro_batch}] + time.send_s;
        free = std::max(free, input) + (pass.forward ? time.forward_s : time.backward_s);
        double& known = end[{s, pass.forward, pass.micro_batch}];
        changed = changed || known != free;
        known = free;
      }
      step = std::max(step, free + stages[s].tail_s);
    }
  }
  return step;
}

RC_GTEST_PROP(PlanSchedule, ScheduleTakesTheTimeOfItsPasses, ()) {
  const uint32_t micro_batches = whole(1, 12);
  std::vector<StageTime> stages(whole(1, 6));
  for (StageTime& stage : stages) stage = any_stage();
  RC_ASSERT(std::abs(run_schedule(stages, micro_batches) - relaxed_step_s(stages, micro_batches)) <
            kRounding);
}

RC_GTEST_PROP(PlanSchedule, EqualStagesHaveTheKnownBubble, ()) {
  const StageTime stage{.forward_s = real(0.1, 2), .backward_s = real(0.1, 4)};
  const uint32_t count = whole(1, 8);
  const uint32_t micro_batches = whole(1, 40);
  const double step = run_schedule(std::vector(count, stage), micro_batches);
  RC_ASSERT(std::abs(step - (micro_batches + count - 1) * (stage.forward_s + stage.backward_s)) <
            kRounding);
}

// Stages with random times and limits of layers; the first and the last have a fixed part too.
SplitProblem any_splits() {
  SplitProblem problem;
  const uint32_t stages = whole(1, 5);
  problem.layers = whole(stages, 9);
  problem.micro_batches = whole(1, 9);
  for (uint32_t s = 0; s < stages; ++s) {
    const StageTime layer = any_stage();
    const StageTime fixed = any_stage();
    const bool ends = s == 0 || s + 1 == stages;
    std::vector<StageTime> times(1);
    for (uint32_t n = 1; n <= whole(1, problem.layers); ++n) {
      times.push_back({n * layer.forward_s + (ends ? fixed.forward_s : 0),
                       n * layer.backward_s + (ends ? fixed.backward_s : 0), layer.send_s,
                       real(0, 3)});
    }
    problem.times.push_back(times);
  }
  return problem;
}

void for_all_splits(const SplitProblem& problem, std::vector<uint32_t>& layers, uint32_t left,
                    const std::function<void()>& visit) {
  if (layers.size() == problem.stages()) {
    if (left == 0) visit();
    return;
  }
  const auto stage = static_cast<uint32_t>(layers.size());
  for (uint32_t n = 1; n <= std::min(left, problem.most(stage)); ++n) {
    layers.push_back(n);
    for_all_splits(problem, layers, left - n, visit);
    layers.pop_back();
  }
}

RC_GTEST_PROP(PlanBound, BoundIsAtMostTheTimeOfAnySplit, ()) {
  const SplitProblem problem = any_splits();
  const SplitBounds bounds(problem);
  std::vector<uint32_t> layers;
  for_all_splits(problem, layers, problem.layers, [&] {
    const double time = step_s(problem, layers) * (1 + kRounding);
    uint32_t left = problem.layers;
    double before = 0;
    RC_ASSERT(bounds.root_s() <= time);
    for (uint32_t s = 0; s < problem.stages(); ++s) {
      left -= layers[s];
      before = bounds.bound_s(std::span(layers).first(s + 1), left);
      RC_ASSERT(before <= time);
    }
    RC_ASSERT(before > 0);
  });
}

RC_GTEST_PROP(PlanSplits, SearchFindsTheBestSplit, ()) {
  const SplitProblem problem = any_splits();
  double best = kNever;
  std::vector<uint32_t> layers;
  for_all_splits(problem, layers, problem.layers,
                 [&] { best = std::min(best, step_s(problem, layers)); });
  const auto found = search_splits(problem, SplitBounds(problem), kNever, 0, 1'000'000);
  RC_ASSERT(found.layers.empty() == (best == kNever));
  if (best == kNever) return;
  RC_ASSERT(std::abs(found.step_s - best) < kRounding);
  RC_ASSERT(found.bound_s <= best * (1 + kRounding));

  const double limit = best * real(0.8, 1.3);
  const auto limited = search_splits(problem, SplitBounds(problem), limit, 0, 1'000'000);
  RC_ASSERT(limited.layers.empty() == (best >= limit));
  // A search that is cut short or has a tolerance returns a valid bound.
  const auto brief =
      search_splits(problem, SplitBounds(problem), kNever, real(0, 0.3), whole(1, 9));
  RC_ASSERT(brief.bound_s <= best * (1 + kRounding));
}

Problem any_problem() {
  Problem problem;
  const bool experts = whole(0, 3) == 0;
  problem.model = {.name = "small",
                   .layers = whole(2, 6),
                   .hidden = 1024,
                   .heads = 16,
                   .kv_heads = whole(0, 1) == 0 ? 16U : 4U,
                   .ffn = 4096,
                   .vocabulary = 32000,
                   .sequence = 1024,
                   .gated = whole(0, 1) == 0,
                   .experts = experts ? 4U : 1U,
                   .top_k = experts ? 2U : 1U};
  problem.cluster.groups.clear();
  problem.cluster.fabric.hosts_per_leaf = whole(0, 1) * 2;
  const uint32_t kinds = whole(1, 2);
  for (uint32_t kind = 0; kind < kinds; ++kind) {
    Accelerator accelerator{.name = kind == 0 ? "a" : "b"};
    accelerator.hosts = whole(1, 2);
    accelerator.per_host = whole(0, 1) == 0 ? 1 : 2;
    accelerator.flops = real(50e12, 400e12);
    accelerator.memory = real(1e9, 20e9);
    accelerator.overhead_s = real(0, 1e-4);
    problem.accelerators.push_back(accelerator);
    problem.cluster.groups.push_back(
        {.hosts = accelerator.hosts, .gpus = accelerator.per_host, .nics = {0}});
  }
  problem.training.global_batch = whole(1, 3) * 4;
  problem.training.micro_batches = {1, 2};
  problem.training.tensor = {1, 2};
  problem.training.experts = {1, 2};
  problem.training.equal_tensor = whole(0, 1) == 0;
  problem.training.shard_optimizer = whole(0, 1) == 0;
  problem.training.overlap = real(0, 1);
  return problem;
}

// Enumerates every split of every shape; returns the best `wanted` shapes.
SearchResult search_all(const Problem& problem, CommTimes& comm, uint32_t wanted) {
  SearchResult result;
  for (const Shape& shape : shapes_of(problem)) {
    ++result.shapes;
    const SplitProblem splits = split_problem(problem, StageCosts(problem, shape, comm));
    Strategy best{shape, {}, kNever};
    std::vector<uint32_t> layers;
    for_all_splits(splits, layers, splits.layers, [&] {
      ++result.splits;
      const double time_s = step_s(splits, layers);
      if (time_s < best.step_s) best = {shape, layers, time_s};
    });
    if (!best.layers.empty()) result.best.push_back(best);
  }
  std::ranges::sort(result.best, {}, &Strategy::step_s);
  if (result.best.size() > wanted) result.best.resize(wanted);
  return result;
}

// Compares the search with enumeration; true if there is a strategy.
bool matches_enumeration(const Problem& problem, uint32_t wanted) {
  CommTimes comm(problem.cluster, problem.overheads);
  const auto all = search_all(problem, comm, wanted);
  const auto found = search(problem, comm, {.best = wanted, .tolerance = 0, .nodes = 1'000'000});
  EXPECT_EQ(found.shapes, all.shapes);
  EXPECT_EQ(found.best.size(), all.best.size());
  for (size_t i = 0; i < std::min(found.best.size(), all.best.size()); ++i) {
    EXPECT_NEAR(found.best[i].step_s / all.best[i].step_s, 1, kRounding);
  }
  if (all.best.empty()) return false;
  EXPECT_LE(found.bound_s, all.best[0].step_s * (1 + kRounding));
  EXPECT_LE(found.splits, all.splits);
  return true;
}

TEST(PlanSearch, SearchFindsTheOptimum) {
  const auto problems = rc::gen::exec(any_problem);
  uint32_t with_strategies = 0;
  for (uint64_t seed = 1; seed <= test::draws(500); ++seed) {
    SCOPED_TRACE(seed);
    const Problem problem = problems(rc::Random(seed), rc::kNominalSize).value();
    if (matches_enumeration(problem, 1 + seed % 4)) ++with_strategies;
  }
  EXPECT_GE(with_strategies, test::draws(300));
}

RC_GTEST_PROP(PlanSearch, StrategiesFitMemoryAndCluster, ()) {
  const Problem problem = any_problem();
  CommTimes comm(problem.cluster, problem.overheads);
  for (const Strategy& strategy : search(problem, comm, {.best = 8}).best) {
    const Shape& shape = strategy.shape;
    RC_ASSERT(strategy.layers.size() == shape.stages());
    RC_ASSERT(std::accumulate(strategy.layers.begin(), strategy.layers.end(), 0U) ==
              problem.model.layers);
    RC_ASSERT(shape.micro_batches(problem.training) * shape.data * shape.micro_batch ==
              problem.training.global_batch);
    for (const Part& part : shape.parts) {
      const Accelerator& kind = problem.accelerators[part.kind];
      RC_ASSERT(part.stages * part.tensor * shape.data <= kind.count());
      RC_ASSERT(kind.per_host % part.tensor == 0U);
    }
    for (uint32_t stage = 0; stage < shape.stages(); ++stage) {
      const uint32_t layers = strategy.layers[stage];
      RC_ASSERT(layers > 0U);
      const StageMemory memory = stage_memory(problem, shape, stage, layers);
      RC_ASSERT(memory.all() <= memory.usable);
    }
  }
}

}  // namespace
}  // namespace pacecar::plan::search_property
