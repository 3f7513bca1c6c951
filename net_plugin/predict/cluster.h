// A cluster as the predictor sees it: hosts with GPUs and NICs, and the switches between them.
// Plain data. Rates are in bytes per second and per direction, times in seconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pacecar::predict {

constexpr double bytes_per_s(double gbps) { return gbps * 1e9 / 8; }

// One kind of NIC with its transport.
struct NicKind {
  std::string name = "400G";
  double rate = bytes_per_s(400);
  // The part of the rate, headers included, that congestion control gives to a long message.
  double efficiency = 0.985;
  double first_share = 15.0 / 16;  // given to a message of less than a round trip
  double latency_s = 0;          // of both ends together: from post to wire, and from wire to poll
  double per_message_s = 0;      // that a message occupies the NIC beyond its bytes
  double packet_bytes = 4096;    // payload of a full packet
  double packet_overhead = 110;  // bytes of a packet on the wire beyond its payload
  double ack_bytes = 106;        // of acknowledgements on the wire, per packet
};

// Hosts that are equal.
struct HostGroup {
  uint32_t hosts = 2;
  uint32_t gpus = 8;
  std::vector<uint32_t> nics = {0};  // the kind of each NIC: index into Cluster::nic_kinds
  double nvlink_rate = 450e9;        // of a GPU
  double nvlink_latency_s = 0.7e-6;  // of one step between two GPUs
  bool nvls = false;                 // the NVLink switch sums and multicasts
};

// Two tiers: leaves, and a core that connects them all. With rails, NIC i of each host of a block
// is on the block's leaf i; otherwise all NICs of a host are on one leaf.
struct Fabric {
  uint32_t hosts_per_leaf = 0;  // 0: one switch for all hosts
  bool rails = false;
  double oversubscription = 1;    // rate of a leaf's hosts over that of its uplinks
  double cable_latency_s = 1e-6;  // propagation and switching; a route has two cables or four
  double core_efficiency = 0.95;  // usable part of the uplinks' rate
};

// The part of the links' rate that other traffic always uses.
struct Background {
  double nics = 0;
  double core = 0;
};

struct Cluster {
  std::vector<NicKind> nic_kinds = {NicKind()};
  std::vector<HostGroup> groups = {HostGroup()};  // hosts are numbered in this order
  Fabric fabric;
  Background background;

  uint32_t hosts() const {
    uint32_t all = 0;
    for (const HostGroup& group : groups) all += group.hosts;
    return all;
  }
  const HostGroup& group_of(uint32_t host) const {
    size_t i = 0;
    for (; i + 1 < groups.size() && host >= groups[i].hosts; ++i) host -= groups[i].hosts;
    return groups[i];
  }
};

}  // namespace pacecar::predict
