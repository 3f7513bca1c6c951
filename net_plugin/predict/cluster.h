// A cluster as the predictor sees it: hosts with GPUs and NICs, and the switches between them.
// Plain data. Rates are bytes per second and per direction, times seconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pacecar::predict {

constexpr double bytes_per_s(double gbps) { return gbps * 1e9 / 8; }

// One kind of NIC and what the transport makes of it. Fitted by calibration.h.
struct NicKind {
  std::string name = "400G";
  double rate = bytes_per_s(400);
  // Of its rate, headers counted: what congestion control lets a long message have.
  double efficiency = 0.985;
  double first_share = 15.0 / 16;  // likewise, what a message of less than a round trip begins with
  double latency_s = 0;        // both ends together: from the post to the wire, from it to the poll
  double per_message_s = 0;    // for which a message keeps the NIC beyond its bytes
  double packet_bytes = 4096;  // payload of a full packet
  double packet_overhead = 110;  // bytes of a packet on the wire beyond its payload
  double ack_bytes = 106;        // on the wire, per packet, the other way
};

// Hosts that are alike.
struct HostGroup {
  uint32_t hosts = 2;
  uint32_t gpus = 8;
  std::vector<uint32_t> nics = {0};  // the kind of each NIC: index into Cluster::nic_kinds
  double nvlink_rate = 450e9;        // of a GPU
  double nvlink_latency_s = 0.7e-6;  // of one step between two GPUs
  bool nvls = false;                 // the NVLink switch sums and multicasts
};

// Two tiers: leaves, and a core that joins them all. With rails NIC i of the hosts of a block is on
// the block's leaf i; else all NICs of a host are on one leaf.
struct Fabric {
  uint32_t hosts_per_leaf = 0;  // 0: one switch for all
  bool rails = false;
  double oversubscription = 1;    // what the hosts of a leaf can send over what its uplinks carry
  double cable_latency_s = 1e-6;  // propagation and switching; a way has two cables, or four
  double cable_packet_rate = 0;   // of an uplink cable, for store and forward; 0: as the NIC's
  // Of the uplinks' rate, where they are what limits.
  double core_efficiency = 0.95;
};

// What others use of the links all the time, as a share of their rate.
struct Background {
  double nics = 0;
  double core = 0;
};

struct Cluster {
  std::vector<NicKind> nic_kinds = {NicKind()};
  std::vector<HostGroup> groups = {HostGroup()};  // hosts are numbered along them
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
