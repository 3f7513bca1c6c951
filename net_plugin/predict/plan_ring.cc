// Steps of rings: each member sends to the next one the data received from the one before.
#include <algorithm>

#include "net_plugin/predict/plan.h"

namespace pacecar::predict {
namespace {

// What a member waits for before its first step.
struct Ready {
  uint32_t received = kNoFlow;
  uint32_t sent = kNoFlow;
};

// `edges`: the flow of each member to the next in one step. `ready`: what the first step waits for;
// on return, what a step after these waits for.
void add_steps(FlowSet& set, std::span<const Flow> edges, uint32_t steps,
               const ProtocolCosts& costs, std::vector<Ready>& ready) {
  const auto members = static_cast<uint32_t>(edges.size());
  const uint32_t slices = costs.slices;
  const auto number = [&, first = set.size()](uint32_t step, uint32_t member, uint32_t slice) {
    return first + (step * members + member) * slices + slice;
  };
  for (uint32_t step = 0; step < steps; ++step) {
    for (uint32_t i = 0; i < members; ++i) {
      const uint32_t before = (i + members - 1) % members;
      for (uint32_t slice = 0; slice < slices; ++slice) {
        const uint32_t flow = set.add(edges[i]);
        if (step == 0) {
          if (ready[i].received != kNoFlow) set.after_received(flow, ready[i].received);
          if (ready[i].sent != kNoFlow) set.after_sent(flow, ready[i].sent);
        } else {
          set.after_received(flow, number(step - 1, before, slice));
        }
        if (step >= costs.slots) {
          set.after_sent(flow, number(step - costs.slots, i, slices - 1));
        }
        if (slice > 0) {
          set.after_drained(flow, flow - 1);
        } else if (step > 0 && costs.slots > 1) {
          set.after_drained(flow, number(step - 1, i, slices - 1));
        }
      }
    }
  }
  for (uint32_t i = 0; i < members && steps > 0; ++i) {
    ready[i] = {number(steps - 1, (i + members - 1) % members, slices - 1),
                number(steps - 1, i, slices - 1)};
  }
}

// How many of `steps` are planned: enough to show the period.
uint32_t planned_steps(uint32_t steps, size_t flows_per_step, const Limits& limits) {
  constexpr uint32_t kFewest = 8;
  const auto affordable = static_cast<uint32_t>(limits.flows / flows_per_step);
  return std::min(steps, std::max(kFewest, affordable));
}

}  // namespace

Plan plan_ring(const PlanInput& input, FlowSet& set) {
  const Collective& what = input.collective;
  const ProtocolCosts& costs = input.costs();
  const uint32_t gpus = what.algorithm == Algorithm::kNvls ? 1 : input.group().gpus;
  const Channels channels = channels_of(input);
  const double per_channel = static_cast<double>(what.bytes) / channels.count;
  const double ranks = static_cast<double>(input.all_hosts) * gpus;
  const bool one_step = what.operation == Operation::kSendRecv;
  const double share = one_step ? per_channel : per_channel / ranks;
  const double rounds = rounds_of(input);
  const double both_ways = what.operation == Operation::kAllReduce ? 2 : 1;
  const auto steps = static_cast<uint32_t>((one_step ? 1 : both_ways * (ranks - 1)) * rounds);

  std::vector<Rank> members;
  for (const uint32_t host : input.hosts) {
    for (uint32_t gpu = 0; gpu < gpus; ++gpu) members.push_back({host, gpu});
  }
  std::vector<Flow> edges;
  for (size_t i = 0; i < members.size() && members.size() > 1; ++i) {
    edges.push_back(input.network.flow(members[i], members[(i + 1) % members.size()], channels.nic,
                                       share / rounds / costs.slices, costs, channels.loads));
  }
  Plan plan;
  if (edges.empty() || steps == 0) return plan;
  std::vector<Ready> ready(edges.size());
  plan.messages = {.count = static_cast<double>(steps) * costs.slices,
                   .bytes = share / rounds / costs.slices / costs.payload};
  const auto per_step = static_cast<uint32_t>(edges.size()) * costs.slices;
  const uint32_t planned = planned_steps(steps, per_step, input.limits);
  repeat(plan, set.size(), per_step, planned, steps);
  add_steps(set, edges, planned, costs, ready);
  return plan;
}

// Over all ranks of the planned hosts. Groups consist of consecutive ranks.
Plan plan_hierarchical(const PlanInput& input, FlowSet& set) {
  const Collective& what = input.collective;
  const ProtocolCosts& costs = input.costs();
  const HostGroup& group = input.group();
  const auto nics = static_cast<uint32_t>(group.nics.size());
  const uint32_t per_group = what.group == 0 ? group.gpus : what.group;
  const auto all_ranks = input.all_hosts * group.gpus;
  std::vector<Rank> ranks;
  for (const uint32_t host : input.hosts) {
    for (uint32_t gpu = 0; gpu < group.gpus; ++gpu) ranks.push_back({host, gpu});
  }
  const auto groups = static_cast<uint32_t>(ranks.size() / per_group);
  const auto edges_of = [&](std::span<const uint32_t> members, double share) {
    std::vector<Flow> edges;
    for (size_t i = 0; i < members.size(); ++i) {
      const Rank from = ranks[members[i]];
      const Rank to = ranks[members[(i + 1) % members.size()]];
      edges.push_back(
          input.network.flow(from, to, from.gpu * nics / group.gpus, share / costs.slices, costs));
    }
    return edges;
  };
  Plan plan;
  std::vector<Ready> ready(ranks.size());
  const auto run_phase = [&](uint32_t rings, uint32_t length, auto member, double bytes,
                             uint32_t steps, uint32_t planned) {
    for (uint32_t ring = 0; ring < rings; ++ring) {
      std::vector<uint32_t> members(length);
      std::vector<Ready> before(length);
      for (uint32_t i = 0; i < length; ++i) {
        members[i] = member(ring, i);
        before[i] = ready[members[i]];
      }
      const double share = bytes / length;
      if (ring == 0) repeat(plan, set.size(), length * costs.slices, planned, steps);
      add_steps(set, edges_of(members, share), planned, costs, before);
      for (uint32_t i = 0; i < length; ++i) ready[members[i]] = before[i];
    }
  };
  const auto local = [&](uint32_t ring, uint32_t i) { return ring * per_group + i; };
  const auto across = [&](uint32_t ring, uint32_t i) { return i * per_group + ring; };
  const auto bytes = static_cast<double>(what.bytes);
  const uint32_t all_groups = all_ranks / per_group;
  const auto planned = [&](uint32_t steps) {
    return planned_steps(steps, ranks.size() * costs.slices, input.limits);
  };
  const uint32_t near = per_group - 1;
  const uint32_t far = 2 * (all_groups - 1);
  run_phase(groups, per_group, local, bytes, near, planned(near));
  // The buffer is divided among all groups, planned or not.
  run_phase(per_group, groups, across, bytes / per_group * groups / all_groups, far, planned(far));
  run_phase(groups, per_group, local, bytes, near, planned(near));
  return plan;
}

}  // namespace pacecar::predict
