#include "bench/sim/ideal.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "transport/base/check.h"

namespace pacecar {
namespace {

// Nanoseconds are too coarse for sums over many packets.
using Picoseconds = int64_t;

Picoseconds time_on_wire(Rate rate, Bytes bytes) {
  constexpr unsigned __int128 kBitPicoseconds = 8'000'000'000'000;
  return static_cast<Picoseconds>(bytes * kBitPicoseconds / rate.bps());
}

Rate sum(Rate a, Rate b) { return Rate::from_bps(a.bps() + b.bps()); }

// When the last bit arrives at the far end of a way, counted from the first bit sent: of `full`
// full packets and a last one. Full packets follow at the pace of the slowest hop so far.
Picoseconds last_arrival(std::span<const Hop> way, uint64_t full, Bytes full_bytes, Bytes last) {
  Picoseconds first_full = 0;  // arrival of the first full packet
  Picoseconds others = 0;      // how much later than the first the last full packet starts
  Picoseconds last_packet = 0;
  for (const Hop& hop : way) {
    const Picoseconds delay = hop.delay.ns() * 1000;
    if (full > 0) {
      others = std::max(others, time_on_wire(hop.total, full_bytes * (full - 1)));
      const Picoseconds next = first_full + others + time_on_wire(hop.total, full_bytes);
      last_packet = std::max(last_packet, next);
      first_full += time_on_wire(hop.rate, full_bytes) + delay;
    }
    last_packet += time_on_wire(hop.rate, last) + delay;
  }
  return last_packet;
}

}  // namespace

std::vector<Hop> path_between(const Topology& topology, const Routing& routing, uint32_t from,
                              uint32_t to, Spread spread) {
  std::vector<Hop> way;
  std::vector<NodeId> here{from};  // where packets may be by now
  while (here.front() != to) {
    Hop hop;
    std::vector<NodeId> next;
    for (const NodeId node : here) {
      for (const LinkId link : routing.next_links(node, to)) {
        const Cable& cable = topology.cable_of(link);
        if (next.empty()) hop = {cable.rate, cable.delay, Rate()};
        hop.total = sum(hop.total, cable.rate);
        next.push_back(topology.to(link));
        if (spread == Spread::kNo) break;
      }
    }
    PACECAR_CHECK(!next.empty());
    std::ranges::sort(next);
    next.erase(std::unique(next.begin(), next.end()), next.end());
    here = std::move(next);
    way.push_back(hop);
  }
  return way;
}

Duration completion_time(std::span<const Hop> there, std::span<const Hop> back, Bytes message,
                         const PacketSizes& sizes) {
  const uint64_t full = message == 0 ? 0 : (message - 1) / sizes.mtu;
  const Picoseconds time = last_arrival(there, full, sizes.mtu + sizes.overhead,
                                        message - full * sizes.mtu + sizes.overhead) +
                           last_arrival(back, 0, 0, sizes.ack);
  return Duration::from_ns((time + 999) / 1000);  // rounded up
}

Duration longest_round_trip(const Topology& topology, const Routing& routing,
                            const PacketSizes& sizes) {
  // Hosts with the same cables to the same switches are alike: two of each kind will do.
  using Kind = std::vector<std::tuple<NodeId, uint64_t, int64_t>>;
  std::vector<Kind> kinds(topology.hosts);
  for (const Cable& cable : topology.cables) {
    const auto add = [&](NodeId host, NodeId other) {
      if (host < topology.hosts) {
        kinds[host].emplace_back(other, cable.rate.bps(), cable.delay.ns());
      }
    };
    add(cable.a, cable.b);
    add(cable.b, cable.a);
  }
  std::map<Kind, std::vector<uint32_t>> alike;
  for (uint32_t host = 0; host < topology.hosts; ++host) {
    std::vector<uint32_t>& hosts = alike[kinds[host]];
    if (hosts.size() < 2) hosts.push_back(host);
  }
  Duration longest;
  for (const auto& [from_kind, from] : alike) {
    for (const auto& [to_kind, to] : alike) {
      if (from.front() == to.back()) continue;  // the only one of its kind
      const auto there = path_between(topology, routing, from.front(), to.back(), Spread::kNo);
      const auto back = path_between(topology, routing, to.back(), from.front(), Spread::kNo);
      longest = std::max(longest, completion_time(there, back, sizes.mtu, sizes));
    }
  }
  return longest;
}

bool has_several_paths(const Topology& topology, const Routing& routing) {
  for (uint32_t to = 1; to < topology.hosts; ++to) {
    NodeId here = 0;
    while (here != to) {
      const auto links = routing.next_links(here, to);
      if (links.size() != 1) return true;
      here = topology.to(links.front());
    }
  }
  return false;
}

HostLimits host_limits(const Topology& topology, std::span<const PolicerConfig> policers) {
  HostLimits limits{std::vector<Rate>(topology.hosts), std::vector<Rate>(topology.hosts)};
  for (LinkId link = 0; link < 2 * topology.cables.size(); ++link) {
    Rate rate = topology.cable_of(link).rate;
    const auto policer = std::ranges::find(policers, link, &PolicerConfig::link);
    if (policer != policers.end()) rate = std::min(rate, policer->rate);
    const NodeId from = topology.from(link);
    const NodeId to = topology.to(link);
    if (from < topology.hosts) limits.out[from] = sum(limits.out[from], rate);
    if (to < topology.hosts) limits.in[to] = sum(limits.in[to], rate);
  }
  return limits;
}

}  // namespace pacecar
