#include "net_plugin/predict/plan.h"

#include <algorithm>
#include <cmath>

#include "transport/base/check.h"

namespace pacecar::predict {

bool has_two_trees(const PlanInput& input) {
  return input.collective.algorithm != Algorithm::kRing && input.overheads.near_trees &&
         input.hosts.size() > 2;
}

Channels channels_of(const PlanInput& input) {
  const auto nics = static_cast<uint32_t>(input.group().nics.size());
  Channels channels{.count = input.collective.channels == 0 ? nics : input.collective.channels};
  const auto rate = [&](uint32_t nic) { return input.network.kind(input.hosts.front(), nic).rate; };
  for (uint32_t nic = 1; nic < std::min(nics, channels.count); ++nic) {
    if (rate(nic) < rate(channels.nic)) channels.nic = nic;
  }
  const double of_nic = static_cast<double>((channels.count + nics - 1) / nics);
  channels.loads = {.nic = of_nic,
                    .leaf = input.network.cluster().fabric.rails ? of_nic : channels.count,
                    .nvlink = static_cast<double>(channels.count)};
  return channels;
}

double bytes_at_once(const PlanInput& input) {
  const Collective& what = input.collective;
  const double chunks = static_cast<double>(input.costs().chunk) * channels_of(input).count;
  if (what.operation == Operation::kSendRecv) return chunks;
  if (goes_in_pieces(what)) return has_two_trees(input) ? 2 * chunks : chunks;
  if (what.algorithm == Algorithm::kRing) return chunks * input.all_hosts * input.group().gpus;
  return what.algorithm == Algorithm::kNvls ? chunks * input.all_hosts : 0;
}

double rounds_of(const PlanInput& input) {
  const double at_once = bytes_at_once(input);
  if (at_once == 0) return 1;
  return std::max(1.0, std::ceil(static_cast<double>(input.collective.bytes) / at_once));
}

void repeat(Plan& plan, uint32_t first, uint32_t flows, uint32_t planned, double steps) {
  if (planned >= steps) return;
  const uint32_t half = planned / 2;
  plan.early = {first + (half - 1) * flows, first + half * flows};
  plan.late = {first + (planned - 1) * flows, first + planned * flows};
  plan.repeats = (steps - planned) / (planned - half);
}

Plan plan_collective(const PlanInput& input, FlowSet& set) {
  const Operation operation = input.collective.operation;
  const Algorithm algorithm = input.collective.algorithm;
  PACECAR_CHECK(supported(operation, algorithm));
  const uint32_t first = set.size();
  Plan plan = goes_in_pieces(input.collective)        ? plan_pieces(input, set)
              : algorithm == Algorithm::kPat          ? plan_pat(input, set)
              : algorithm == Algorithm::kHierarchical ? plan_hierarchical(input, set)
              : operation == Operation::kAllToAll     ? plan_all_to_all(input, set)
                                                      : plan_ring(input, set);
  plan.flows = {first, set.size()};
  if (algorithm == Algorithm::kNvls || algorithm == Algorithm::kNvlsTree) {
    const HostGroup& group = input.group();
    plan.extra_s += 2 * (group.nvlink_latency_s + input.costs().local_step_s);
    plan.at_least(
        static_cast<double>(input.collective.bytes) * (1 + 1.0 / group.gpus) / group.nvlink_rate,
        Cause::kNvlink);
  }
  plan.extra_s += input.costs().launch_s;
  return plan;
}

// PAT (parallel aggregated trees): in step s each rank sends to the rank 2^s further on all the
// data that this one lacks. The hosts of one leaf represent those of all leaves. Hosts that send to
// another leaf share the uplinks.
Plan plan_pat(const PlanInput& input, FlowSet& set) {
  const Network& network = input.network;
  const ProtocolCosts& costs = input.costs();
  const Cluster& cluster = network.cluster();
  const HostGroup& group = input.group();
  const uint32_t ranks = input.all_hosts * group.gpus;
  const double share = static_cast<double>(input.collective.bytes) / ranks;
  const auto nics = static_cast<double>(group.nics.size());
  const bool one_leaf =
      cluster.fabric.hosts_per_leaf == 0 || cluster.fabric.hosts_per_leaf >= input.all_hosts;
  const uint32_t near = one_leaf ? 1 : cluster.fabric.hosts_per_leaf;
  const auto on_first_leaf = [&](uint32_t host) {
    return network.leaf_of(host, 0) == network.leaf_of(input.hosts.front(), 0);
  };
  const bool all_shown = !one_leaf && input.hosts.size() == input.all_hosts;
  const auto shown =
      static_cast<uint32_t>(one_leaf    ? 1
                            : all_shown ? input.all_hosts
                                        : std::ranges::count_if(input.hosts, on_first_leaf));
  const double spread = std::max(1.0, nics / group.gpus);  // NICs of a rank
  const double nic_load =
      spread * group.gpus / nics * (1 + ack_share(network.kind(input.hosts.front(), 0)));
  const double leaf_load = nic_load * (cluster.fabric.rails ? 1 : nics);
  const uint32_t begin = set.size();
  uint32_t hosts_before = 0;  // the distance of the previous step, in hosts
  for (uint32_t distance = 1; distance < ranks; distance *= 2) {
    const double payload = share / spread * std::min(distance, ranks - distance);
    const uint32_t hosts_on = distance / group.gpus;
    const double beyond = one_leaf ? 0 : std::min(hosts_on, near);
    const uint32_t crossing = hosts_on == 0 || one_leaf
                                  ? 0
                                  : std::clamp(shown * std::min(hosts_on, near) / near, 1U, shown);
    const uint32_t first = set.size();
    for (uint32_t i = 0; i < shown; ++i) {
      const uint32_t host = input.hosts[i];
      const uint32_t to = input.hosts[(i + hosts_on) % shown];
      const bool crosses =
          all_shown ? network.leaf_of(host, 0) != network.leaf_of(to, 0) : i + crossing >= shown;
      Flow flow;
      if (hosts_on == 0) {
        flow = network.flow({host, 0}, {host, 1}, 0, payload, costs);
      } else {
        const NicKind& kind = network.kind(host, 0);
        flow = network.remote(kind, kind, !crosses, payload, costs);
        flow.route.add(network.nic_out(host, 0), nic_load);
        flow.route.add(network.nic_in(to, 0), nic_load);
        if (crosses && all_shown) {
          flow.route.add(network.uplink(network.leaf_of(host, 0)), leaf_load);
          flow.route.add(network.downlink(network.leaf_of(to, 0)), leaf_load);
        } else if (crosses) {
          flow.route.add(network.uplink(network.leaf_of(host, 0)), leaf_load * beyond / crossing);
        }
      }
      const uint32_t number = set.add(flow);
      if (first == begin) continue;
      const uint32_t step_before = first - shown;
      set.after_received(number, step_before + (i + shown - hosts_before % shown) % shown);
      if (costs.slots == 1) set.after_sent(number, step_before + i);
    }
    hosts_before = hosts_on;
  }
  return {};
}

}  // namespace pacecar::predict
