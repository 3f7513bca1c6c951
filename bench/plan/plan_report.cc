#include "bench/plan/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace pacecar::plan {
namespace {

StageReport stage_report(const Problem& problem, const Strategy& strategy, const StageCosts& costs,
                         uint32_t stage) {
  const uint32_t layers = strategy.layers[stage];
  StageReport found{.part = strategy.shape.part_of(stage),
                    .layers = layers,
                    .forward = costs.forward(stage, layers),
                    .backward = costs.backward(stage, layers),
                    .send_s = costs.send_s(stage),
                    .tail = costs.tail(stage, layers),
                    .memory = stage_memory(problem, strategy.shape, stage, layers),
                    .traffic = costs.traffic(stage, layers)};
  found.usable_memory = usable_memory(problem, found.part.kind);
  const double busy =
      costs.micro_batches() * (found.forward.all() + found.backward.all()) + found.tail.all();
  found.idle = 1 - busy / strategy.step_s;
  return found;
}

StepShares shares_of(const StageReport& stage, double micro_batches, double step_s) {
  const auto passes = [&](double PassTimes::*part) {
    return micro_batches * (stage.forward.*part + stage.backward.*part) / step_s;
  };
  return {.compute = passes(&PassTimes::compute_s),
          .tensor = passes(&PassTimes::tensor_s),
          .experts = passes(&PassTimes::expert_s),
          .waiting = stage.idle,
          .gradients = stage.tail.gradients_s / step_s,
          .optimizer = stage.tail.optimizer_s / step_s,
          .weights = stage.tail.weights_s / step_s};
}

std::string limit_of(const Problem& problem, const PlanReport& report) {
  const StepShares& shares = report.shares;
  std::array<std::pair<double, std::string_view>, 6> parts{{
      {shares.compute, "compute"},
      {shares.tensor, "all-reduces over NVLink"},
      {shares.experts, "all-to-alls of experts"},
      {shares.waiting, "waiting for other stages"},
      {shares.gradients + shares.weights, "gradients and weights over the NICs"},
      {shares.optimizer, "the optimizer"},
  }};
  std::ranges::stable_sort(parts, std::ranges::greater{},
                           &std::pair<double, std::string_view>::first);
  const StageReport& stage = report.stages[report.busiest];
  std::string text =
      fmt::format("stage {} ({} layers on {}) is busy longest: {:.1f}% of the step is {}",
                  report.busiest, stage.layers, problem.accelerators[stage.part.kind].name,
                  100 * parts[0].first, parts[0].second);
  for (size_t i = 1; i < 3 && parts[i].first >= 0.0005; ++i) {
    text += fmt::format(", {:.1f}% {}", 100 * parts[i].first, parts[i].second);
  }
  return text;
}

}  // namespace

double tokens_per_step(const Problem& problem) {
  return double{1} * problem.training.global_batch * problem.model.sequence;
}

double compute_bound_s(const Problem& problem) {
  double rate = 0;
  for (const Accelerator& each : problem.accelerators) {
    rate += each.count() * each.flops * each.efficiency;
  }
  return training_flops(problem.model) * tokens_per_step(problem) / rate;
}

double alone_tokens_per_s(const Problem& problem, CommTimes& comm, SearchOptions options) {
  options.best = 1;
  double sum = 0;
  for (uint32_t kind = 0; kind < problem.accelerators.size(); ++kind) {
    Problem alone = problem;
    for (uint32_t other = 0; other < problem.accelerators.size(); ++other) {
      if (other != kind) alone.accelerators[other].hosts = 0;
    }
    const auto found = search(alone, comm, options);
    sum += tokens_per_step(problem) / (found.best.empty() ? compute_bound_s(alone) : found.bound_s);
  }
  return sum;
}

PlanReport report_of(const Problem& problem, const Strategy& strategy, CommTimes& comm) {
  const StageCosts costs(problem, strategy.shape, comm);
  PlanReport report{.strategy = strategy, .micro_batches = costs.micro_batches()};
  double peak = 0;
  for (const Accelerator& each : problem.accelerators) peak += each.count() * each.flops;
  report.tokens_per_s = tokens_per_step(problem) / strategy.step_s;
  report.utilisation = report.tokens_per_s * training_flops(problem.model) / peak;
  report.of_compute = compute_bound_s(problem) / strategy.step_s;
  double least_idle = 2;
  for (uint32_t stage = 0; stage < costs.stages(); ++stage) {
    report.stages.push_back(stage_report(problem, strategy, costs, stage));
    const StageReport& now = report.stages.back();
    const uint32_t accelerators = now.part.tensor * strategy.shape.data;
    report.used += accelerators;
    report.bubble += accelerators * now.idle;
    if (now.idle < least_idle) report.busiest = stage;
    least_idle = std::min(least_idle, now.idle);
  }
  report.bubble /= report.used;
  report.shares = shares_of(report.stages[report.busiest], report.micro_batches, strategy.step_s);
  report.limited_by = limit_of(problem, report);
  return report;
}

}  // namespace pacecar::plan
