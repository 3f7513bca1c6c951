#include "bench/plan/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace pacecar::plan {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PassTimes, compute_s, tensor_s, experts_s);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TailTimes, gradients_s, optimizer_s, weights_s);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StageMemory, weights, optimizer, activations, usable);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Traffic, tensor, pipeline, data, experts);

namespace {

std::string_view name_of(Recompute recompute) {
  return recompute == Recompute::kFull ? "full" : "none";
}

// Calls use(first, end) for each run of items that are equal.
template <typename Items, typename Equal, typename Use>
void for_each_run(const Items& items, const Equal& equal, const Use& use) {
  for (size_t first = 0, end = 0; first < items.size(); first = end) {
    while (end < items.size() && equal(items[first], items[end])) ++end;
    use(first, end);
  }
}

// "5 14x8": the layers of each stage, and how many stages in a row have as many.
std::string layers_text(std::span<const uint32_t> layers) {
  std::vector<std::string> runs;
  for_each_run(layers, std::equal_to(), [&](size_t first, size_t end) {
    runs.push_back(std::to_string(layers[first]));
    if (end - first > 1) runs.back() += fmt::format("x{}", end - first);
  });
  return fmt::format("{}", fmt::join(runs, " "));
}

double tokens_per_step(const Problem& problem) {
  return double{1} * problem.training.global_batch * problem.model.sequence;
}

// Seconds of a step if all accelerators computed at their efficiency all the time, each operation
// once: no strategy takes less.
double compute_bound_s(const Problem& problem) {
  double rate = 0;
  for (const Accelerator& each : problem.accelerators) {
    rate += each.count() * each.flops * each.efficiency;
  }
  return training_flops(problem.model) * tokens_per_step(problem) / rate;
}

// "2 x amd tp4 > 10 x a tp4".
std::string parts_text(const Problem& problem, const Shape& shape) {
  std::vector<std::string> parts;
  for (const Part& part : shape.parts) {
    parts.push_back(fmt::format("{} x {} tp{}", part.stages, problem.accelerators[part.kind].name,
                                part.tensor));
  }
  return fmt::format("{}", fmt::join(parts, " > "));
}

std::string head_text(const Answer& answer) {
  const Problem& problem = answer.problem;
  uint32_t all = 0;
  std::vector<std::string> kinds;
  for (const Accelerator& each : problem.accelerators) {
    all += each.count();
    kinds.push_back(fmt::format("{} {}", each.count(), each.name));
  }
  std::string text = fmt::format(
      "{}, {:.1f} G parameters, on {} accelerators ({}): {} samples of {} tokens per step\n",
      problem.model.name, parameters(problem.model) * 1e-9, all, fmt::join(kinds, ", "),
      problem.training.global_batch, problem.model.sequence);
  const double best = answer.plans[0].strategy.step_s;
  text += fmt::format(
      "{} shapes, {} searched, {} splits simulated in {:.2f} s; at most {:.2f}% above the "
      "optimum\n",
      answer.search.shapes, answer.search.shapes_searched, answer.search.splits, answer.search_s,
      100 * (best / answer.search.bound_s - 1));
  text += fmt::format("of the compute bound: {:.2f}%", 100 * answer.plans[0].of_compute);
  if (answer.alone_tokens_per_s > 0) {
    text += fmt::format("; of the sum of what each kind reaches alone: {:.2f}%",
                        100 * answer.plans[0].tokens_per_s / answer.alone_tokens_per_s);
  }
  return text + "\n\n";
}

std::string plans_text(const Answer& answer) {
  std::string text = fmt::format(
      "{:>2} {:>9} {:>10} {:>6} {:>8} {:>5} {:>4} {:>3} {:>6} {:>9}  {}\n", "#", "step s",
      "tokens/s", "MFU %", "bubble %", "used", "dp", "mb", "count", "recompute", "stages: layers");
  for (size_t i = 0; i < answer.plans.size(); ++i) {
    const PlanReport& plan = answer.plans[i];
    const Shape& shape = plan.strategy.shape;
    text += fmt::format(
        "{:>2} {:>9.4g} {:>10.0f} {:>6.2f} {:>8.2f} {:>5} {:>4} {:>3} {:>6} {:>9}  {}: {}{}\n",
        i + 1, plan.strategy.step_s, plan.tokens_per_s, 100 * plan.utilisation, 100 * plan.bubble,
        plan.used, shape.data, shape.micro_batch, plan.micro_batches, name_of(shape.recompute),
        parts_text(answer.problem, shape), layers_text(plan.strategy.layers),
        shape.experts > 1 ? fmt::format(" ep{}", shape.experts) : "");
  }
  return text;
}

// Prints equal consecutive stages once, with the memory of the first one, which has the most
// activations.
std::string stages_text(const Answer& answer) {
  const PlanReport& plan = answer.plans[0];
  std::string text = fmt::format(
      "\nplan 1, per accelerator:\n{:>9} {:>12} {:>6} {:>10} {:>11} {:>7} {:>16} {:>9} {:>11} "
      "{:>7}\n",
      "stages", "kind", "layers", "forward ms", "backward ms", "idle %", "memory of GB",
      "NVLink GB", "pipeline GB", "data GB");
  const auto alike = [](const StageReport& a, const StageReport& b) {
    return a.part == b.part && a.layers == b.layers;
  };
  for_each_run(plan.stages, alike, [&](size_t first, size_t end) {
    const StageReport& stage = plan.stages[first];
    const auto& [forward, backward, send_s, tail, memory, traffic] = stage.cost;
    text += fmt::format(
        "{:>9} {:>12} {:>6} {:>10.2f} {:>11.2f} {:>7.2f} {:>8.1f} {:>7.1f} {:>9.2f} {:>11.2f} "
        "{:>7.2f}\n",
        end - first > 1 ? fmt::format("{}-{}", first, end - 1) : std::to_string(first),
        answer.problem.accelerators[stage.part.kind].name, stage.layers, forward.all() * 1e3,
        backward.all() * 1e3, 100 * stage.idle, memory.all() * 1e-9, memory.usable * 1e-9,
        traffic.tensor * 1e-9, traffic.pipeline * 1e-9, (traffic.data + traffic.experts) * 1e-9);
  });
  return text + plan.limited_by + "\n";
}

nlohmann::json json_of(const Problem& problem, const StageReport& stage) {
  return {{"kind", problem.accelerators[stage.part.kind].name},
          {"tensor", stage.part.tensor},
          {"layers", stage.layers},
          {"forward", stage.cost.forward},
          {"backward", stage.cost.backward},
          {"send_s", stage.cost.send_s},
          {"tail", stage.cost.tail},
          {"idle", stage.idle},
          {"memory_bytes", stage.cost.memory},
          {"traffic_bytes", stage.cost.traffic}};
}

nlohmann::json json_of(const Problem& problem, const PlanReport& plan) {
  const Shape& shape = plan.strategy.shape;
  nlohmann::json stages = nlohmann::json::array();
  for (const StageReport& stage : plan.stages) stages.push_back(json_of(problem, stage));
  nlohmann::json shares;
  for (const StepShare& each : plan.shares) shares[each.key] = each.share;
  return {{"step_s", plan.strategy.step_s},
          {"tokens_per_s", plan.tokens_per_s},
          {"mfu", plan.utilisation},
          {"bubble", plan.bubble},
          {"of_compute_bound", plan.of_compute},
          {"accelerators", plan.used},
          {"data", shape.data},
          {"micro_batch", shape.micro_batch},
          {"micro_batches", plan.micro_batches},
          {"experts", shape.experts},
          {"recompute", name_of(shape.recompute)},
          {"layers", plan.strategy.layers},
          {"stages", stages},
          {"limited_by", plan.limited_by},
          {"busiest_stage", plan.busiest},
          {"shares", shares}};
}

std::vector<StepShare> shares_of(const StageReport& stage, double micro_batches, double step_s) {
  const auto& [forward, backward, send_s, tail, memory, traffic] = stage.cost;
  const auto passes = [&](double pass_s) { return micro_batches * pass_s / step_s; };
  constexpr std::string_view kNics = "gradients and weights over the NICs";
  return {
      {"compute", "compute", passes(forward.compute_s + backward.compute_s)},
      {"tensor", "all-reduces over NVLink", passes(forward.tensor_s + backward.tensor_s)},
      {"experts", "all-to-alls of experts", passes(forward.experts_s + backward.experts_s)},
      {"waiting", "waiting for other stages", stage.idle},
      {"gradients", kNics, tail.gradients_s / step_s},
      {"weights", kNics, tail.weights_s / step_s},
      {"optimizer", "the optimizer", tail.optimizer_s / step_s},
  };
}

// Names the three largest shares of the step; adjacent shares with the same name count together.
std::string limit_of(const Problem& problem, const PlanReport& report) {
  std::vector<std::pair<double, std::string_view>> parts;
  for (const auto& [key, name, share] : report.shares) {
    if (parts.empty() || parts.back().second != name) parts.emplace_back(0, name);
    parts.back().first += share;
  }
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

std::string text_of(const Answer& answer) {
  return head_text(answer) + plans_text(answer) + stages_text(answer);
}

nlohmann::json document_of(const Answer& answer) {
  nlohmann::json plans = nlohmann::json::array();
  for (const PlanReport& plan : answer.plans) plans.push_back(json_of(answer.problem, plan));
  nlohmann::json document = {{"schema_version", 1},
                             {"model", answer.problem.model.name},
                             {"parameters", parameters(answer.problem.model)},
                             {"plans", plans},
                             {"bound_s", answer.search.bound_s},
                             {"compute_bound_s", compute_bound_s(answer.problem)},
                             {"shapes", answer.search.shapes},
                             {"shapes_searched", answer.search.shapes_searched},
                             {"splits_simulated", answer.search.splits},
                             {"search_s", answer.search_s}};
  if (answer.alone_tokens_per_s > 0) document["alone_tokens_per_s"] = answer.alone_tokens_per_s;
  return document;
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
  for (uint32_t stage = 0; stage < costs.stages(); ++stage) {
    const uint32_t layers = strategy.layers[stage];
    StageReport now{strategy.shape.part_of(stage), layers, costs.of(stage, layers)};
    const double passes_s = now.cost.forward.all() + now.cost.backward.all();
    now.idle = 1 - (report.micro_batches * passes_s + now.cost.tail.all()) / strategy.step_s;
    const uint32_t accelerators = now.part.tensor * strategy.shape.data;
    report.used += accelerators;
    report.bubble += accelerators * now.idle;
    report.stages.push_back(now);
  }
  const auto busiest = std::ranges::min_element(report.stages, {}, &StageReport::idle);
  report.busiest = static_cast<uint32_t>(busiest - report.stages.begin());
  report.bubble /= report.used;
  report.shares = shares_of(report.stages[report.busiest], report.micro_batches, strategy.step_s);
  report.limited_by = limit_of(problem, report);
  return report;
}

}  // namespace pacecar::plan
