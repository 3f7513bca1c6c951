#include "net_plugin/predict/plan.h"

#include <algorithm>
#include <cmath>

#include "transport/base/check.h"

namespace pacecar::predict {

Network::Network(const Cluster& cluster, std::span<const uint32_t> hosts) : cluster_(cluster) {
  for (const HostGroup& group : cluster.groups) {
    nics_ = std::max(nics_, static_cast<uint32_t>(group.nics.size()));
    gpus_ = std::max(gpus_, group.gpus);
  }
  for (const uint32_t host : hosts) add_host(host);
}

void Network::add_host(uint32_t host) {
  const HostGroup& group = cluster_.group_of(host);
  places_[host] = static_cast<uint32_t>(links_.size());
  for (uint32_t nic = 0; nic < nics_; ++nic) {
    const NicKind& of = kind(host, nic);
    const double rate = of.rate * of.efficiency * (1 - cluster_.background.nics);
    links_.push_back({rate, Cause::kNicOut});
    links_.push_back({rate, Cause::kNicIn});
  }
  for (uint32_t gpu = 0; gpu < gpus_; ++gpu) {
    links_.push_back({group.nvlink_rate, Cause::kNvlink});
    links_.push_back({group.nvlink_rate, Cause::kNvlink});
  }
  for (uint32_t nic = 0; nic < group.nics.size(); ++nic) add_leaf(host, nic);
}

const NicKind& Network::kind(uint32_t host, uint32_t nic) const {
  const HostGroup& group = cluster_.group_of(host);
  return cluster_.nic_kinds[group.nics[nic % group.nics.size()]];
}

uint32_t Network::leaf_of(uint32_t host, uint32_t nic) const {
  const Fabric& fabric = cluster_.fabric;
  const uint32_t block = fabric.hosts_per_leaf == 0 ? 0 : host / fabric.hosts_per_leaf;
  return fabric.rails ? block * nics_ + nic % nics_ : block;
}

// The uplinks of a leaf carry the rate of its hosts over the oversubscription.
void Network::add_leaf(uint32_t host, uint32_t nic) {
  const uint32_t leaf = leaf_of(host, nic);
  if (leaves_.contains(leaf)) return;
  const Fabric& fabric = cluster_.fabric;
  const uint32_t below = fabric.hosts_per_leaf == 0 ? cluster_.hosts() : fabric.hosts_per_leaf;
  double rate = kind(host, nic).rate;
  if (!fabric.rails) {
    rate = 0;
    for (uint32_t i = 0; i < cluster_.group_of(host).nics.size(); ++i) rate += kind(host, i).rate;
  }
  rate *= below * fabric.core_efficiency * (1 - cluster_.background.core) / fabric.oversubscription;
  leaves_[leaf] = static_cast<uint32_t>(links_.size());
  links_.push_back({rate, Cause::kUplink});
  links_.push_back({rate, Cause::kDownlink});
}

Flow Network::remote(const NicKind& from, const NicKind& to, bool same_leaf, double payload,
                     const ProtocolCosts& costs) const {
  const Fabric& fabric = cluster_.fabric;
  const double sent = payload / costs.payload;
  const double packets = std::max(1.0, std::ceil(sent / from.packet_bytes));
  const double slower = std::min(from.rate, to.rate);
  // Each switch stores and forwards; the last packet waits for a full one before it.
  const double last = (packets > 1 ? from.packet_bytes : sent) + from.packet_overhead;
  const auto way = [&](double packet) {
    const double edges = 2 * fabric.cable_latency_s + packet / to.rate;
    return same_leaf ? edges : edges + 2 * fabric.cable_latency_s + 2 * packet / slower;
  };
  Flow flow;
  flow.bytes = sent + packets * from.packet_overhead + from.per_message_s * from.rate;
  flow.delay_s = costs.step_s;
  flow.there_s = way(last) + (from.latency_s + to.latency_s) / 2;
  flow.back_s = way(from.ack_bytes) + from.ack_bytes / from.rate;
  // Congestion control starts below the line rate.
  const double round_trip_s = flow.there_s + flow.back_s;
  const bool brief = payload < from.rate * round_trip_s;
  flow.packet_s = (from.packet_bytes + from.packet_overhead) / from.rate;
  if (!brief) flow.tolerated_s = std::max(round_trip_s / 4, 6 * flow.packet_s);
  flow.route.rate_max = slower * costs.rate_share * (brief ? from.first_share : 1);
  return flow;
}

double Network::round_trip_s() const {
  const NicKind& nic = cluster_.nic_kinds.front();
  const Flow far = remote(nic, nic, false, nic.packet_bytes, {});
  return far.bytes / nic.rate + far.there_s + far.back_s;
}

Flow Network::flow(Rank from, Rank to, uint32_t nic, double payload, const ProtocolCosts& costs,
                   const Loads& loads) const {
  if (from.host == to.host) {
    const HostGroup& group = cluster_.group_of(from.host);
    Flow flow{.bytes = payload / costs.payload,
              .delay_s = costs.local_step_s,
              .there_s = group.nvlink_latency_s};
    flow.route.rate_max = group.nvlink_rate * costs.rate_share;
    flow.route.add(nvlink_out(from.host, from.gpu), loads.nvlink);
    flow.route.add(nvlink_in(to.host, to.gpu), loads.nvlink);
    return flow;
  }
  const uint32_t leaf = leaf_of(from.host, nic);
  const uint32_t other = leaf_of(to.host, nic);
  Flow flow = remote(kind(from.host, nic), kind(to.host, nic), leaf == other, payload, costs);
  flow.route.add(nic_out(from.host, nic), loads.nic);
  flow.route.add(nic_in(to.host, nic), loads.nic);
  const double acks = ack_share(kind(from.host, nic));
  flow.route.add_acks(nic_in(from.host, nic), loads.nic * acks);
  flow.route.add_acks(nic_out(to.host, nic), loads.nic * acks);
  if (leaf != other) {
    flow.route.add(uplink(leaf), loads.leaf);
    flow.route.add(downlink(other), loads.leaf);
    flow.route.add_acks(downlink(leaf), loads.leaf * acks);
    flow.route.add_acks(uplink(other), loads.leaf * acks);
  }
  return flow;
}

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
