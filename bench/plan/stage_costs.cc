#include "bench/plan/stage_costs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "net_plugin/predict/predict.h"

namespace pacecar::plan {
namespace {

using predict::Algorithm;
using predict::Operation;
using predict::Protocol;

predict::Cluster cluster_of(const predict::Cluster& all, Operation operation,
                            const RankGroup& group) {
  predict::Cluster cluster = all;
  cluster.nic_kinds.clear();
  cluster.groups.clear();
  // With the group's own NICs, or its share of one.
  const auto add = [&](uint32_t kind, uint32_t hosts, uint32_t gpus) {
    predict::HostGroup& added = cluster.groups.emplace_back(all.groups[kind]);
    added.hosts = hosts;
    added.gpus = gpus;
    const auto nics = static_cast<uint32_t>(added.nics.size());
    added.nics.resize(std::max(1U, nics / group.sharing));
    for (uint32_t& nic : added.nics) {
      cluster.nic_kinds.push_back(all.nic_kinds[nic]);
      cluster.nic_kinds.back().rate *= std::min(1.0, static_cast<double>(nics) / group.sharing);
      nic = static_cast<uint32_t>(cluster.nic_kinds.size() - 1);
    }
  };
  add(group.kind, group.hosts, group.per_host);
  if (operation == Operation::kSendRecv && group.per_host == 1) {
    add(group.other, 1, 1);
    // Consecutive stages may be on different leaves.
    if (cluster.fabric.hosts_per_leaf > 0) cluster.fabric.hosts_per_leaf = 1;
  }
  return cluster;
}

// A group of ranks that are `apart` accelerators apart; those between belong to equal groups.
RankGroup group_of(const Problem& problem, const Part& part, uint32_t ranks, uint32_t apart) {
  const uint32_t per_host = problem.accelerators[part.kind].per_host;
  const uint32_t room = std::max(1U, per_host / apart);
  const uint32_t hosts = (ranks + room - 1) / room;
  return {.kind = part.kind,
          .other = part.kind,
          .hosts = hosts,
          .per_host = (ranks + hosts - 1) / hosts,
          .sharing = std::min(apart, per_host)};
}

// A rank of one stage and its peer in the next one. Each has its share of the NICs, as all ranks of
// their hosts send.
RankGroup send_group(const Problem& problem, const Part& from, const Part& to) {
  const uint32_t pairs = std::min(from.tensor, to.tensor);
  const auto senders = [&](const Part& part) {
    return problem.accelerators[part.kind].per_host / part.tensor * pairs;
  };
  return {.kind = from.kind, .other = to.kind, .sharing = std::max(senders(from), senders(to))};
}

PassTimes of_layers(const PassTimes& layer, uint32_t layers, double head_s) {
  return {layer.compute_s * layers + head_s, layer.tensor_s * layers, layer.experts_s * layers};
}

// The part of a collective that compute does not hide. It starts as the layers end one by one, so
// at least the last layer's part is exposed.
double exposed(double time_s, double hidden_by_s, uint32_t layers) {
  return std::max(time_s - hidden_by_s, time_s / layers);
}

}  // namespace

ParameterCount held_parameters(const Problem& problem, const Shape& shape, uint32_t stage,
                               uint32_t layers) {
  const ParameterCount layer = layer_parameters(problem.model);
  const double tensor = shape.part_of(stage).tensor;
  ParameterCount held{layers * layer.shared, layers * layer.experts / shape.experts};
  if (stage == 0) held.shared += embedding_parameters(problem.model);
  if (stage + 1 == shape.stages()) held.shared += head_parameters(problem.model);
  if (shape.stages() == 1) held.shared -= shared_parameters(problem.model);
  return {held.shared / tensor, held.experts / tensor};
}

StageMemory stage_memory(const Problem& problem, const Shape& shape, uint32_t stage,
                         uint32_t layers) {
  const Training& training = problem.training;
  const Precision& bytes = training.precision;
  const Part& part = shape.part_of(stage);
  const double tensor = part.tensor;
  const ParameterCount held = held_parameters(problem, shape, stage, layers);
  StageMemory memory{.usable = problem.accelerators[part.kind].memory * training.usable_memory};
  memory.weights = held.all() * (bytes.element + bytes.gradient);
  const double ranks = training.shard_optimizer ? shape.data : 1;
  const double expert_ranks = training.shard_optimizer ? shape.data / shape.experts : 1;
  memory.optimizer = bytes.optimizer * (held.shared / ranks + held.experts / expert_ranks);

  const double tokens = double{1} * shape.micro_batch * problem.model.sequence;
  const double layer = activations(problem.model) * bytes.element * tokens / tensor;
  const double input = problem.model.hidden * bytes.element * tokens / tensor;
  const bool repeated = shape.recompute == Recompute::kFull;
  const double micro_batches = in_flight(stage, shape.stages(), shape.micro_batches(training));
  memory.activations = micro_batches * layers * (repeated ? input : layer);
  if (repeated) memory.activations += layer;
  // The logits, and their gradients in 32 bits.
  if (stage + 1 == shape.stages())
    memory.activations += tokens * problem.model.vocabulary * (bytes.element + 4) / tensor;
  return memory;
}

double CommTimes::time_s(Operation operation, const RankGroup& group, double bytes) {
  const bool pair = operation == Operation::kSendRecv;
  if ((group.hosts * group.per_host < 2 && !pair) || bytes <= 0) return 0;
  const Key key{operation, group};
  const auto [found, fresh] = columns_.try_emplace(key);
  if (fresh) found->second.fill(-1);
  Column& column = found->second;
  const double exponent = std::log2(bytes);
  if (exponent <= kSmallest) return at(column, key, kSmallest);
  if (exponent >= kLargest) return at(column, key, kLargest) * bytes / std::exp2(kLargest);
  const int below = static_cast<int>(exponent);
  const double begin = at(column, key, below);
  const double end = at(column, key, below + 1);
  return begin + (end - begin) * (bytes / std::exp2(below) - 1);
}

double CommTimes::at(Column& column, const Key& key, int exponent) {
  double& time = column[static_cast<size_t>(exponent - kSmallest)];
  if (time >= 0) return time;
  const predict::Cluster cluster = cluster_of(cluster_, key.operation, key.group);
  time = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < predict::kAlgorithms * predict::kProtocols; ++i) {
    const auto algorithm = static_cast<Algorithm>(i / predict::kProtocols);
    if (algorithm == Algorithm::kHierarchical || algorithm == Algorithm::kPat) continue;
    const predict::Collective what{.operation = key.operation,
                                   .algorithm = algorithm,
                                   .protocol = static_cast<Protocol>(i % predict::kProtocols),
                                   .bytes = static_cast<Bytes>(std::exp2(exponent))};
    if (!predict::possible(cluster, what)) continue;
    const auto found = predict::predict(cluster, what, library_, predict::CostTable::kQuick);
    time = std::min(time, found.time_s);
  }
  return time;
}

StageCosts::StageCosts(const Problem& problem, const Shape& shape, CommTimes& comm)
    : problem_(problem),
      shape_(shape),
      comm_(comm),
      micro_batches_(shape.micro_batches(problem.training)),
      tokens_(double{1} * shape.micro_batch * problem.model.sequence) {
  for (uint32_t i = 0; i < shape.parts.size(); ++i) {
    const Part& part = shape.parts[i];
    parts_.push_back(part_times(part));
    const double within = part.stages > 1 ? send_between(part, part) : 0;
    places_.insert(places_.end(), part.stages, {i, within});
    const bool ends = i + 1 == shape.parts.size();
    places_.back().send_s = ends ? 0 : send_between(part, shape.parts[i + 1]);
  }
}

StageCosts::PartTimes StageCosts::part_times(const Part& part) const {
  const Model& model = problem_.model;
  const Accelerator& accelerator = problem_.accelerators[part.kind];
  const Precision& bytes = problem_.training.precision;
  const ParameterCount held = layer_parameters(model);
  const double weights = held.shared + held.experts / shape_.experts;
  const double moved = (weights + 2 * activations(model) * tokens_) * bytes.element / part.tensor;
  const double flops = layer_flops(model) * tokens_ / part.tensor;
  const double hidden_bytes = tokens_ * model.hidden * bytes.element;

  PartTimes found;
  found.forward.compute_s = accelerator.overhead_s + compute_s(accelerator, flops, moved);
  found.forward.tensor_s =
      2 * comm_.time_s(Operation::kAllReduce,
                       {.kind = part.kind, .other = part.kind, .per_host = part.tensor},
                       hidden_bytes);
  const RankGroup experts = group_of(problem_, part, shape_.experts, part.tensor);
  found.forward.experts_s =
      2 * comm_.time_s(Operation::kAllToAll, experts, hidden_bytes * model.top_k / part.tensor);
  const double passes = shape_.recompute == Recompute::kFull ? 3 : 2;
  found.backward.compute_s =
      passes * compute_s(accelerator, flops, moved) + (passes - 1) * accelerator.overhead_s;
  found.backward.tensor_s = (passes - 1) * found.forward.tensor_s;
  found.backward.experts_s = (passes - 1) * found.forward.experts_s;
  const double head_bytes =
      (head_parameters(model) + tokens_ * model.vocabulary) * bytes.element / part.tensor;
  found.head_s = compute_s(accelerator, head_flops(model) * tokens_ / part.tensor, head_bytes);
  found.data = group_of(problem_, part, shape_.data, part.tensor);
  found.expert_data =
      group_of(problem_, part, shape_.data / shape_.experts, part.tensor * shape_.experts);
  return found;
}

// Each rank of the smaller tensor parallel group sends its part of the activations to its peer.
double StageCosts::send_between(const Part& from, const Part& to) const {
  const uint32_t pairs = std::min(from.tensor, to.tensor);
  const double bytes =
      tokens_ * problem_.model.hidden * problem_.training.precision.element / pairs;
  RankGroup group = send_group(problem_, from, to);
  if (from == to && shape_.ranks(from) <= problem_.accelerators[from.kind].per_host)
    group.per_host = 2;
  return comm_.time_s(Operation::kSendRecv, group, bytes);
}

StageCost StageCosts::of(uint32_t stage, uint32_t layers) const {
  const PartTimes& part = parts_[places_[stage].part];
  const Training& training = problem_.training;
  const Precision& bytes = training.precision;
  const ParameterCount held = held_parameters(problem_, shape_, stage, layers);
  const bool last = stage + 1 == stages();
  StageCost cost{.forward = of_layers(part.forward, layers, last ? part.head_s : 0),
                 .backward = of_layers(part.backward, layers, last ? 2 * part.head_s : 0),
                 .send_s = send_s(stage),
                 .memory = stage_memory(problem_, shape_, stage, layers),
                 .traffic = traffic(stage, layers, held)};
  const auto both = [&](Operation operation, double element) {
    return comm_.time_s(operation, part.data, held.shared * element) +
           comm_.time_s(operation, part.expert_data, held.experts * element);
  };
  const bool shards = training.shard_optimizer;
  const double reduce =
      both(shards ? Operation::kReduceScatter : Operation::kAllReduce, bytes.gradient);
  const double gather = shards ? both(Operation::kAllGather, bytes.element) : 0;
  const Accelerator& accelerator = problem_.accelerators[shape_.part_of(stage).kind];
  cost.tail = {.gradients_s = exposed(reduce, training.overlap * cost.backward.all(), layers),
               .optimizer_s = 2 * cost.memory.optimizer / accelerator.memory_rate,  // read, written
               .weights_s = exposed(gather, training.overlap * cost.forward.all(), layers)};
  return cost;
}

uint32_t StageCosts::most_layers(uint32_t stage) const {
  uint32_t fits = 0;
  for (uint32_t too_many = problem_.model.layers + 1; too_many - fits > 1;) {
    const uint32_t middle = (fits + too_many) / 2;
    const StageMemory memory = stage_memory(problem_, shape_, stage, middle);
    (memory.all() <= memory.usable ? fits : too_many) = middle;
  }
  return fits;
}

Traffic StageCosts::traffic(uint32_t stage, uint32_t layers, const ParameterCount& held) const {
  const Part& part = shape_.part_of(stage);
  const Training& training = problem_.training;
  const Precision& bytes = training.precision;
  const double passes =
      layers * micro_batches_ * (shape_.recompute == Recompute::kFull ? 3.0 : 2.0);
  const double hidden_bytes = tokens_ * problem_.model.hidden * bytes.element;
  // The part of a ring or an all-to-all that is not the rank's own.
  const auto share = [](double ranks) { return (ranks - 1) / ranks; };
  const double reduced = bytes.gradient * (training.shard_optimizer ? 1 : 2);
  const double gathered = training.shard_optimizer ? bytes.element : 0;
  const uint32_t neighbours = (stage > 0 ? 1 : 0) + (stage + 1 < stages() ? 1 : 0);
  return {.tensor = passes * 2 * 2 * share(part.tensor) * hidden_bytes,
          .pipeline = double{1} * micro_batches_ * neighbours * hidden_bytes / part.tensor,
          .data = (reduced + gathered) *
                  (held.shared * share(shape_.data) +
                   held.experts * share(static_cast<double>(shape_.data) / shape_.experts)),
          .experts = passes * 2 * share(shape_.experts) * hidden_bytes * problem_.model.top_k /
                     part.tensor};
}

}  // namespace pacecar::plan
