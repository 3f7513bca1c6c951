#include "bench/plan/plan_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace pacecar::plan {
namespace {

std::string_view name_of(Recompute recompute) {
  return recompute == Recompute::kFull ? "full" : "none";
}

// "2 stages of amd x 4, 10 of a x 4".
std::string parts_text(const Problem& problem, const Shape& shape) {
  std::string text;
  for (const Part& part : shape.parts) {
    text += fmt::format("{}{} x {} tp{}", text.empty() ? "" : " > ", part.stages,
                        problem.accelerators[part.kind].name, part.tensor);
  }
  return text;
}

std::string head_text(const Answer& answer) {
  const Problem& problem = answer.problem;
  uint32_t all = 0;
  std::string kinds;
  for (const Accelerator& each : problem.accelerators) {
    all += each.count();
    kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", each.count(), each.name);
  }
  std::string text = fmt::format(
      "{}, {:.1f} G parameters, on {} accelerators ({}): {} samples of {} tokens per step\n",
      problem.model.name, parameters(problem.model) * 1e-9, all, kinds,
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

bool alike(const StageReport& one, const StageReport& other) {
  return one.part == other.part && one.layers == other.layers;
}

// Equal consecutive stages are printed once; activations, which become less from stage to stage,
// are the first one's.
std::string stages_text(const Answer& answer) {
  const PlanReport& plan = answer.plans[0];
  std::string text = fmt::format(
      "\nplan 1, per accelerator:\n{:>9} {:>12} {:>6} {:>10} {:>11} {:>7} {:>16} {:>9} {:>11} "
      "{:>7}\n",
      "stages", "kind", "layers", "forward ms", "backward ms", "idle %", "memory of GB",
      "NVLink GB", "pipeline GB", "data GB");
  for (size_t i = 0; i < plan.stages.size();) {
    size_t end = i + 1;
    while (end < plan.stages.size() && alike(plan.stages[i], plan.stages[end])) ++end;
    const StageReport& stage = plan.stages[i];
    const std::string range = end - i > 1 ? fmt::format("{}-{}", i, end - 1) : fmt::format("{}", i);
    text += fmt::format(
        "{:>9} {:>12} {:>6} {:>10.2f} {:>11.2f} {:>7.2f} {:>8.1f} {:>7.1f} {:>9.2f} {:>11.2f} "
        "{:>7.2f}\n",
        range, answer.problem.accelerators[stage.part.kind].name, stage.layers,
        stage.forward.all() * 1e3, stage.backward.all() * 1e3, 100 * stage.idle,
        stage.memory.all() * 1e-9, stage.usable_memory * 1e-9, stage.traffic.tensor * 1e-9,
        stage.traffic.pipeline * 1e-9, (stage.traffic.data + stage.traffic.experts) * 1e-9);
    i = end;
  }
  return text + plan.limited_by + "\n";
}

nlohmann::json json_of(const PassTimes& times) {
  return {
      {"compute_s", times.compute_s}, {"tensor_s", times.tensor_s}, {"experts_s", times.expert_s}};
}

nlohmann::json json_of(const Problem& problem, const StageReport& stage) {
  return {{"kind", problem.accelerators[stage.part.kind].name},
          {"tensor", stage.part.tensor},
          {"layers", stage.layers},
          {"forward", json_of(stage.forward)},
          {"backward", json_of(stage.backward)},
          {"send_s", stage.send_s},
          {"tail",
           {{"gradients_s", stage.tail.gradients_s},
            {"optimizer_s", stage.tail.optimizer_s},
            {"weights_s", stage.tail.weights_s}}},
          {"idle", stage.idle},
          {"memory_bytes",
           {{"weights", stage.memory.weights},
            {"optimizer", stage.memory.optimizer},
            {"activations", stage.memory.activations},
            {"usable", stage.usable_memory}}},
          {"traffic_bytes",
           {{"tensor", stage.traffic.tensor},
            {"pipeline", stage.traffic.pipeline},
            {"data", stage.traffic.data},
            {"experts", stage.traffic.experts}}}};
}

nlohmann::json json_of(const Problem& problem, const PlanReport& plan) {
  const Shape& shape = plan.strategy.shape;
  nlohmann::json stages = nlohmann::json::array();
  for (const StageReport& stage : plan.stages) stages.push_back(json_of(problem, stage));
  const StepShares& shares = plan.shares;
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
          {"shares",
           {{"compute", shares.compute},
            {"tensor", shares.tensor},
            {"experts", shares.experts},
            {"waiting", shares.waiting},
            {"gradients", shares.gradients},
            {"optimizer", shares.optimizer},
            {"weights", shares.weights}}}};
}

}  // namespace

std::string layers_text(std::span<const uint32_t> layers) {
  std::string text;
  for (size_t i = 0; i < layers.size();) {
    size_t end = i + 1;
    while (end < layers.size() && layers[end] == layers[i]) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : " ", layers[i]);
    if (end - i > 1) text += fmt::format("x{}", end - i);
    i = end;
  }
  return text;
}

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

}  // namespace pacecar::plan
