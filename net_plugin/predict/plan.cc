#include "net_plugin/predict/plan.h"

#include <algorithm>

#include "transport/base/check.h"

namespace pacecar::predict {

Channels channels_of(const PlanInput& input) {
  const Cluster& cluster = input.network.cluster();
  const HostGroup& group = cluster.group_of(input.hosts.front());
  const auto nics = static_cast<uint32_t>(group.nics.size());
  Channels channels{.count = input.collective.channels == 0 ? nics : input.collective.channels};
  const auto rate = [&](uint32_t nic) { return input.network.kind(input.hosts.front(), nic).rate; };
  for (uint32_t nic = 1; nic < std::min(nics, channels.count); ++nic) {
    if (rate(nic) < rate(channels.nic)) channels.nic = nic;
  }
  const double of_nic = static_cast<double>((channels.count + nics - 1) / nics);
  channels.loads = {.nic = of_nic,
                    .leaf = cluster.fabric.rails ? of_nic : channels.count,
                    .nvlink = static_cast<double>(channels.count)};
  return channels;
}

Plan plan_collective(const PlanInput& input, FlowSet& set) {
  PACECAR_CHECK(supported(input.collective.operation, input.collective.algorithm));
  const Operation operation = input.collective.operation;
  Plan plan;
  switch (input.collective.algorithm) {
    case Algorithm::kRing:
      plan = operation == Operation::kBroadcast || operation == Operation::kReduce
                 ? plan_pieces(input, set)
                 : plan_ring(input, set);
      break;
    case Algorithm::kNvls:
      plan = plan_ring(input, set);
      break;
    case Algorithm::kTree:
    case Algorithm::kNvlsTree:
      plan = plan_pieces(input, set);
      break;
    case Algorithm::kPat:
      plan = plan_pat(input, set);
      break;
    case Algorithm::kHierarchical:
      plan = plan_hierarchical(input, set);
      break;
    case Algorithm::kPairwise:
      plan =
          operation == Operation::kAllToAll ? plan_all_to_all(input, set) : plan_ring(input, set);
      break;
  }
  plan.extra_s += input.overheads.of(input.collective.protocol).launch_s;
  return plan;
}

}  // namespace pacecar::predict
