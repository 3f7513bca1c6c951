// All ranks send to all others: planned as classes of equal flows, or few messages one by one.
#include <algorithm>
#include <cmath>
#include <map>

#include "net_plugin/predict/plan.h"

namespace pacecar::predict {
namespace {

// Hosts with one GPU, all messages at once: the messages from one leaf to another are one class.
void add_leaf_pairs(const PlanInput& input, double message, FlowSet& set) {
  const Network& network = input.network;
  const ProtocolCosts& costs = input.costs();
  std::map<uint32_t, std::vector<uint32_t>> leaves;
  for (const uint32_t host : input.hosts) leaves[network.leaf_of(host, 0)].push_back(host);
  for (const auto& [from, senders] : leaves) {
    for (const auto& [to, receivers] : leaves) {
      const bool same = from == to;
      const double each = static_cast<double>(receivers.size()) - (same ? 1 : 0);  // per sender
      if (each == 0) continue;
      Flow flow = network.remote(network.kind(senders[0], 0), network.kind(receivers[0], 0), same,
                                 message, costs);
      // The other direction is as busy, so its acknowledgements load these links.
      const double acked = 1 + ack_share(network.kind(senders[0], 0));
      flow.route.add(network.nic_out(senders[0], 0), acked * each);
      flow.route.add(network.nic_in(receivers.back(), 0),
                     acked * (static_cast<double>(senders.size()) - (same ? 1 : 0)));
      if (!same) {
        const double all = acked * each * static_cast<double>(senders.size());
        flow.route.add(network.uplink(from), all);
        flow.route.add(network.downlink(to), all);
      }
      set.add(flow);
    }
  }
}

// Bytes of the demands and grants that a message causes, for itself and for the flows next to it:
// as measured, of 128 bytes each on the wire.
double control_write_bytes(uint32_t at_once) {
  constexpr double kBytes = 128;
  constexpr double kPerFlow = 1.6;
  constexpr uint32_t kMostFlows = 8;
  return kBytes * kPerFlow * std::min(at_once, kMostFlows);
}

// As bench/workload's all_to_all: `at_once` destinations are spread evenly around the ring of
// hosts, and the end of each message starts the next one.
void add_in_turn(const PlanInput& input, double message, uint32_t at_once, FlowSet& set) {
  const auto n = static_cast<uint32_t>(input.hosts.size());
  const uint32_t others = n - 1;
  const ProtocolCosts& costs = input.costs();
  const uint32_t stride = others / at_once;
  // Brief messages leave a NIC one after another; others share it.
  const bool brief = input.network.is_brief(message * at_once);
  std::vector<uint32_t> distances;
  for (uint32_t i = 0; i < stride; ++i) {
    for (uint32_t j = 0; j < at_once; ++j) distances.push_back(1 + i + j * stride);
  }
  for (uint32_t far = at_once * stride + 1; far < n; ++far) distances.push_back(far);
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t k = 0; k < others; ++k) {
      const uint32_t to = input.hosts[(i + distances[k]) % n];
      Flow one = input.network.flow({input.hosts[i], 0}, {to, 0}, 0, message, costs);
      one.bytes += control_write_bytes(at_once);
      const uint32_t flow = set.add(one);
      if (k >= at_once) set.after_sent(flow, flow - at_once);
      if (k > 0 && brief) set.after_drained(flow, flow - 1);
    }
  }
}

// Any cluster of equal hosts: one flow each for the peers in the host, on its leaf and beyond. With
// rails, data goes over NVLink first to the GPU on the destination's rail.
void add_classes(const PlanInput& input, double message, double at_once, FlowSet& set) {
  const Network& network = input.network;
  const ProtocolCosts& costs = input.costs();
  const Cluster& cluster = network.cluster();
  const uint32_t host = input.hosts.front();
  const HostGroup& group = input.group();
  const double gpus = group.gpus;
  const double of_nic = gpus / static_cast<double>(group.nics.size());
  const double hosts = input.all_hosts;
  const double near = cluster.fabric.hosts_per_leaf == 0
                          ? hosts
                          : std::min<double>(hosts, cluster.fabric.hosts_per_leaf);
  const double share = at_once / (hosts * gpus - 1);  // of all peers, at the same time
  if (group.gpus > 1) {
    Flow local = network.flow({host, 0}, {host, 1}, 0, message, costs);
    for (uint32_t i = 0; i < local.route.count; ++i) {
      local.route.uses[i].load = static_cast<float>((gpus - 1) * share);
    }
    set.add(local);
  }
  const NicKind& kind = network.kind(host, 0);
  const auto add = [&](double peers, bool same_leaf) {
    if (peers < 1) return;
    Flow flow = network.remote(kind, kind, same_leaf, message, costs);
    const double load =
        std::max(of_nic * peers * share, std::min(1.0, of_nic)) * (1 + ack_share(kind));
    flow.route.add(network.nic_out(host, 0), load);
    flow.route.add(network.nic_in(host, 0), load);
    if (!same_leaf) {
      const double of_leaf = load * near * (cluster.fabric.rails ? 1 : double(group.nics.size()));
      flow.route.add(network.uplink(network.leaf_of(host, 0)), of_leaf);
    }
    set.add(flow);
  };
  add((near - 1) * gpus, true);
  add((hosts - near) * gpus, false);
}

}  // namespace

Plan plan_all_to_all(const PlanInput& input, FlowSet& set) {
  const Collective& what = input.collective;
  const HostGroup& group = input.group();
  const uint32_t ranks = input.all_hosts * group.gpus;
  const double message = static_cast<double>(what.bytes) / ranks;
  const uint32_t others = ranks - 1;
  const uint32_t at_once = what.parallel == 0 ? others : std::min(what.parallel, others);
  Plan plan;
  const bool all_seen = input.hosts.size() == input.all_hosts && group.gpus == 1;
  if (all_seen && at_once == others) {
    add_leaf_pairs(input, message, set);
  } else if (all_seen) {
    add_in_turn(input, message, at_once, set);
  } else {
    const uint32_t first = set.size();
    add_classes(input, message, at_once, set);
    const uint32_t classes = set.size() - first;
    const double rounds = std::ceil(static_cast<double>(others) / at_once);
    if (rounds > 1) {  // a second round, after all of the first
      add_classes(input, message, at_once, set);
      for (uint32_t later = 0; later < classes; ++later) {
        for (uint32_t i = 0; i < classes; ++i) set.after_sent(first + classes + later, first + i);
      }
      repeat(plan, first, classes, 2, rounds);
    }
  }
  return plan;
}

}  // namespace pacecar::predict
