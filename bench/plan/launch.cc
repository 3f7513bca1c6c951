#include "bench/plan/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

namespace pacecar::plan {
namespace {

// Which hosts have which ranks: Megatron-LM numbers ranks along tensor, data, pipeline.
std::string hosts_comment(const Problem& problem, const Shape& shape) {
  std::string text = "# Ranks, and so hosts, in the order of the pipeline: ";
  uint32_t unused = 0;
  for (const Accelerator& each : problem.accelerators) unused += each.count();
  for (size_t i = 0; i < shape.parts.size(); ++i) {
    const Part& part = shape.parts[i];
    const Accelerator& kind = problem.accelerators[part.kind];
    const uint32_t ranks = shape.ranks(part);
    text += fmt::format("{}{} {} on hosts of {} ('{}')", i > 0 ? ", then " : "", ranks,
                        ranks == 1 ? "rank" : "ranks", kind.per_host, kind.name);
    unused -= ranks;
  }
  if (unused > 0) text += fmt::format("; {} accelerators are left out", unused);
  return text + "\n";
}

std::string torchrun(const Problem& problem, const Shape& shape, std::string_view script) {
  uint32_t hosts = 0;
  uint32_t per_host = 0;
  bool equal = true;
  for (const Part& part : shape.parts) {
    const uint32_t ranks = shape.ranks(part);
    const uint32_t room = std::min(problem.accelerators[part.kind].per_host, ranks);
    hosts += (ranks + room - 1) / room;
    equal = equal && (per_host == 0 || per_host == room) && ranks % room == 0;
    per_host = room;
  }
  std::string text;
  if (!equal)
    text = "# Hosts have different numbers of ranks: give each its own --nproc-per-node.\n";
  return text + fmt::format("torchrun --nnodes {} --nproc-per-node {} {}", hosts, per_host, script);
}

// How the layers are divided; empty if equally.
std::string split_arguments(const std::vector<uint32_t>& layers) {
  const auto equal = [](std::span<const uint32_t> part) {
    return std::ranges::adjacent_find(part, std::ranges::not_equal_to()) == part.end();
  };
  if (equal(layers)) return "";
  if (layers.size() > 2 && equal(std::span(layers).subspan(1, layers.size() - 2))) {
    return fmt::format(
        "--decoder-first-pipeline-num-layers {} --decoder-last-pipeline-num-layers {}",
        layers.front(), layers.back());
  }
  std::vector<std::string> stages;  // "Et*5|t*14|...|t*13L"
  for (const uint32_t each : layers) stages.push_back(each == 1 ? "t" : fmt::format("t*{}", each));
  return fmt::format("--pipeline-model-parallel-layout \"E{}L\"", fmt::join(stages, "|"));
}

// The lines of pretrain_gpt.py's arguments; empty ones are left out.
std::vector<std::string> megatron_arguments(const Problem& problem, const Strategy& strategy) {
  const Shape& shape = strategy.shape;
  const Model& model = problem.model;
  const Training& training = problem.training;
  const auto only_if = [](bool wanted, std::string text) { return wanted ? text : std::string(); };
  std::vector<std::string> lines = {
      "pretrain_gpt.py",
      fmt::format("--num-layers {} --hidden-size {} --ffn-hidden-size {} --num-attention-heads {}",
                  model.layers, model.hidden, model.ffn, model.heads),
      fmt::format("--seq-length {} --max-position-embeddings {}", model.sequence, model.sequence) +
          only_if(model.kv_heads != model.heads,
                  fmt::format(" --group-query-attention --num-query-groups {}", model.kv_heads)) +
          only_if(model.gated, " --swiglu"),
      only_if(!model.gpt,
              "--normalization RMSNorm --disable-bias-linear --position-embedding-type rope"
              " --untie-embeddings-and-output-weights"),
      only_if(model.experts > 1,
              fmt::format("--num-experts {} --moe-router-topk {}", model.experts, model.top_k)),
      fmt::format("--micro-batch-size {} --global-batch-size {}", shape.micro_batch,
                  training.global_batch),
      fmt::format("--tensor-model-parallel-size {} --pipeline-model-parallel-size {}",
                  shape.parts[0].tensor, shape.stages()),
      split_arguments(strategy.layers),
      only_if(model.experts > 1, fmt::format("--expert-model-parallel-size {}", shape.experts)),
      only_if(shape.parts[0].tensor > 1, "--sequence-parallel"),
      only_if(training.precision.element < 4, "--bf16"),
      only_if(training.shard_optimizer, "--use-distributed-optimizer") +
          only_if(training.shard_optimizer && training.overlap > 0,
                  " --overlap-grad-reduce --overlap-param-gather"),
      only_if(shape.recompute == Recompute::kFull,
              "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1")};
  std::erase(lines, "");
  return lines;
}

}  // namespace

std::string megatron_launch(const Problem& problem, const Strategy& strategy) {
  std::string text = hosts_comment(problem, strategy.shape);
  if (std::ranges::adjacent_find(strategy.shape.parts, std::ranges::not_equal_to(),
                                 &Part::tensor) != strategy.shape.parts.end()) {
    text +=
        "# Megatron-LM has one tensor parallel size for all stages, and this plan several: plan "
        "with\n# training.equal_tensor = true.\n";
  }
  const auto lines = megatron_arguments(problem, strategy);
  return text + torchrun(problem, strategy.shape, fmt::format("{}", fmt::join(lines, " \\\n  "))) +
         "\n";
}

}  // namespace pacecar::plan
