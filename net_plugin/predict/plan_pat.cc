// PAT (parallel aggregated trees): in step s each rank sends to the rank 2^s further on all the
// data that this one lacks. The hosts of one leaf represent the hosts of all leaves. Hosts that
// send to another leaf share the uplinks.
#include <algorithm>

#include "net_plugin/predict/plan.h"

namespace pacecar::predict {

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
