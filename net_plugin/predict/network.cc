#include "net_plugin/predict/network.h"

#include <algorithm>
#include <cmath>

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
  const auto own = static_cast<uint32_t>(cluster_.group_of(host).nics.size());
  return fabric.rails ? block * nics_ + nic % own : block;
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

}  // namespace pacecar::predict
