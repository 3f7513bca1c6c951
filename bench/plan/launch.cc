#include "bench/plan/launch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <vector>

#include "transport/base/return_if_error.h"

namespace pacecar::plan {
namespace {

using predict::Operation;

Result<double> nic_rate(const Problem& problem) {
  const predict::Cluster& cluster = problem.cluster;
  const predict::NicKind& first = cluster.nic_kinds[cluster.groups[0].nics[0]];
  for (const predict::HostGroup& group : cluster.groups) {
    const bool equal = std::ranges::all_of(
        group.nics, [&](uint32_t nic) { return cluster.nic_kinds[nic].rate == first.rate; });
    if (!equal || group.nics.size() != group.gpus || group.gpus != cluster.groups[0].gpus) {
      return fail(ErrorCode::kInvalidArgument,
                  "only plans of hosts that are alike, with a NIC of the same rate for each "
                  "accelerator, can be simulated: give all kinds the same host.nics and gpus");
    }
  }
  return first.rate;
}

struct Experiment {
  const Problem& problem;
  const Strategy& strategy;
  CommTimes& comm;
  double scale;
  const Shape& shape = strategy.shape;
  std::vector<uint32_t> first = {};  // rank of each stage
  uint32_t ranks = 0;
  double sends_s = 0;
  std::string jobs = {};

  std::string text(double rate) {
    for (uint32_t stage = 0; stage < shape.stages(); ++stage) {
      first.push_back(ranks);
      ranks += shape.data * shape.part_of(stage).tensor;
    }
    const predict::Fabric& fabric = problem.cluster.fabric;
    const uint32_t per_host = problem.accelerators[0].per_host;
    const uint32_t leaf = fabric.hosts_per_leaf * per_host;
    const uint32_t hosts = leaf == 0 ? ranks : (ranks + leaf - 1) / leaf * leaf;
    std::string found = fmt::format(
        "[topology]\nkind = \"{}\"\nhosts = {}\nrate = \"{:.0f}M\"\ndelay = \"{:.0f}ns\"\n",
        leaf == 0 ? "star" : "leaf-spine", hosts, rate * 8e-6, fabric.cable_latency_s * 1e9);
    if (leaf > 0) found += fmt::format("hosts_per_leaf = {}\n", leaf);
    add_sends();
    add_reductions();
    return found + "[workload]\n" + jobs;
  }

  void add_job(std::string_view name, std::string_view kind, double bytes, double start_s,
               const std::vector<uint32_t>& hosts) {
    jobs += fmt::format(
        "[[workload.job]]\nname = \"{}\"\nkind = \"{}\"\nbytes = {:.0f}\nstart = \"{:.0f}us\"\n"
        "hosts = [{}]\n",
        name, kind, bytes, start_s * 1e6, fmt::join(hosts, ", "));
  }

  void add_sends() {
    for (uint32_t stage = 0; stage + 1 < first.size(); ++stage) {
      const Part& from = shape.part_of(stage);
      const Part& to = shape.part_of(stage + 1);
      const uint32_t pairs = std::min(from.tensor, to.tensor);
      const double bytes = scale * shape.micro_batch * problem.model.sequence *
                           problem.model.hidden * problem.training.precision.element / pairs;
      std::vector<uint32_t> forward;
      std::vector<uint32_t> back;
      for (uint32_t data = 0; data < shape.data; ++data) {
        for (uint32_t i = 0; i < pairs; ++i) {
          const uint32_t one = first[stage] + data * from.tensor + i;
          const uint32_t other = first[stage + 1] + data * to.tensor + i;
          forward.insert(forward.end(), {one, other});
          back.insert(back.end(), {other, one});
        }
      }
      const double time_s = comm.time_s(Operation::kSendRecv, send_group(problem, from, to), bytes);
      jobs += fmt::format("# predicted: {:.1f} us\n", time_s * 1e6);
      add_job(fmt::format("send{}", stage), "pairs", bytes, 0, forward);
      add_job(fmt::format("back{}", stage), "pairs", bytes, 0, back);
      sends_s = std::max(sends_s, time_s);
    }
  }

  // A ring per NIC of a host; the ranks of a group on one host have summed over NVLink before.
  void add_reductions() {
    constexpr double kPause = 10;  // times the longest send: all sends have ended
    for (uint32_t stage = 0; stage < first.size(); ++stage) {
      const Part& part = shape.part_of(stage);
      const uint32_t on_host =
          std::min(shape.data, problem.accelerators[part.kind].per_host / part.tensor);
      const uint32_t hosts = shape.data / on_host;
      if (hosts < 2) continue;
      const ParameterCount held = held_parameters(problem, shape, stage, strategy.layers[stage]);
      const double bytes = scale * held.shared * problem.training.precision.gradient / on_host;
      const RankGroup ring{
          .kind = part.kind, .other = part.kind, .hosts = hosts, .sharing = part.tensor * on_host};
      jobs += fmt::format("# predicted: {:.1f} us\n",
                          comm.time_s(Operation::kReduceScatter, ring, bytes) * 1e6);
      for (uint32_t nic = 0; nic < on_host * part.tensor; ++nic) {
        std::vector<uint32_t> members;
        for (uint32_t host = 0; host < hosts; ++host)
          members.push_back(first[stage] + host * on_host * part.tensor + nic);
        add_job(fmt::format("reduce{}.{}", stage, nic), "reduce_scatter", bytes, kPause * sends_s,
                members);
      }
    }
  }
};

bool equal_tensor(const Shape& shape) {
  return std::ranges::all_of(
      shape.parts, [&](const Part& part) { return part.tensor == shape.parts[0].tensor; });
}

// Which hosts have which ranks: both programs number ranks along tensor, data, pipeline.
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

Result<std::string> sim_experiment(const Problem& problem, const Strategy& strategy,
                                   CommTimes& comm, double scale) {
  ASSIGN_OR_RETURN(const auto rate, nic_rate(problem));
  return Experiment{problem, strategy, comm, scale}.text(rate);
}

std::string megatron_launch(const Problem& problem, const Strategy& strategy) {
  std::string text = hosts_comment(problem, strategy.shape);
  if (!equal_tensor(strategy.shape)) {
    text +=
        "# Megatron-LM has one tensor parallel size for all stages, and this plan several: plan "
        "with\n# training.equal_tensor = true.\n";
  }
  const auto lines = megatron_arguments(problem, strategy);
  return text + torchrun(problem, strategy.shape, fmt::format("{}", fmt::join(lines, " \\\n  "))) +
         "\n";
}

std::string torch_launch(const Problem& problem, const Strategy& strategy) {
  const Shape& shape = strategy.shape;
  std::string text = hosts_comment(problem, shape);
  text += torchrun(problem, shape, "train.py\n");
  text += "\n# train.py\n";
  if (equal_tensor(shape)) {
    text += fmt::format(
        "mesh = init_device_mesh(\"cuda\", ({}, {}, {}), mesh_dim_names=(\"pp\", \"dp\", "
        "\"tp\"))\n",
        shape.stages(), shape.data, shape.parts[0].tensor);
  } else {
    text +=
        "# One mesh cannot hold the unequal tensor parallel groups of the stages: make one per "
        "stage,\n# of (data, tensor) = ";
    for (const Part& part : shape.parts)
      text += fmt::format("{} x ({}, {}) ", part.stages, shape.data, part.tensor);
    text += "\n";
  }
  text += "split_spec = {";
  uint32_t first = 0;
  for (size_t i = 0; i + 1 < strategy.layers.size(); ++i) {
    first += strategy.layers[i];
    text += fmt::format("{}\"layers.{}\": SplitPoint.BEGINNING", i > 0 ? ", " : "", first);
  }
  text +=
      fmt::format("}}\nschedule = Schedule1F1B(stage, n_microbatches={})  # of {} samples each\n",
                  shape.micro_batches(problem.training), shape.micro_batch);
  if (shape.recompute == Recompute::kFull)
    text +=
        "# Each layer under torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).\n";
  if (problem.training.shard_optimizer)
    text +=
        "# Optimizer: ZeroRedundancyOptimizer over mesh[\"dp\"], or fully_shard without "
        "resharding after forward.\n";
  if (shape.experts > 1)
    text +=
        fmt::format("# Experts: divided among {} neighbouring ranks of \"dp\".\n", shape.experts);
  return text;
}

}  // namespace pacecar::plan
