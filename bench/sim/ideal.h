// How long packets take through a fabric that carries nothing else. Exact for store and forward,
// where each hop forwards a packet when it has the whole packet. Sizes are bytes on the wire. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/units.h"
#include "transport/sim/fabric_config.h"
#include "transport/sim/routing.h"
#include "transport/sim/topology.h"

namespace pacecar {

struct Hop {
  Rate rate;  // of one cable, which is that of one packet
  Duration delay;
  Rate total;  // of all cables that packets are spread over, which is that of many packets
};

// One of the shortest ways between two different hosts. Packets are spread over all equally short
// ways, or all take the same way.
enum class Spread : uint8_t { kNo, kYes };
std::vector<Hop> path_between(const Topology& topology, const Routing& routing, uint32_t from,
                              uint32_t to, Spread spread);

// How the transport cuts messages into packets.
struct PacketSizes {
  Bytes mtu = 0;       // payload of a full packet
  Bytes overhead = 0;  // of a data packet beyond its payload
  Bytes ack = 0;       // an acknowledgement
};

// From the first bit sent until the acknowledgement of the last packet has arrived. If `back` is
// empty: until the last bit has arrived.
Duration completion_time(std::span<const Hop> there, std::span<const Hop> back, Bytes message,
                         const PacketSizes& sizes);

// The longest round trip of a full packet and its acknowledgement between any two hosts.
Duration longest_round_trip(const Topology& topology, const Routing& routing,
                            const PacketSizes& sizes);

// Whether packets from the first host to another one may take different ways.
bool has_several_paths(const Topology& topology, const Routing& routing);

// What all links of each host carry together, in each direction: of a link its rate, or that of its
// policer.
struct HostLimits {
  std::vector<Rate> out;
  std::vector<Rate> in;
};
HostLimits host_limits(const Topology& topology, std::span<const PolicerConfig> policers = {});

}  // namespace pacecar
