// The links between the planned hosts of a cluster, and the flow of a message over them. Rates in
// bytes per second, times in seconds. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/collective.h"
#include "net_plugin/predict/fluid.h"

namespace pacecar::predict {

struct Rank {
  uint32_t host = 0;  // of the cluster
  uint32_t gpu = 0;
};

// How many equal flows, of parallel channels, one flow represents on each kind of link.
struct Loads {
  double nic = 1;
  double leaf = 1;
  double nvlink = 1;
};

// Bytes of acknowledgements per byte on the wire.
inline double ack_share(const NicKind& kind) {
  return kind.ack_bytes / (kind.packet_bytes + kind.packet_overhead);
}

class Network {
 public:
  // `hosts`: each once. The cluster must outlive the network.
  Network(const Cluster& cluster, std::span<const uint32_t> hosts);

  // Between GPUs of a host over NVLink; between hosts over NIC `nic` of both. `payload` in bytes.
  Flow flow(Rank from, Rank to, uint32_t nic, double payload, const ProtocolCosts& costs,
            const Loads& loads = {}) const;
  Flow remote(const NicKind& from, const NicKind& to, bool same_leaf, double payload,
              const ProtocolCosts& costs) const;  // Between hosts, without its links.

  uint32_t leaf_of(uint32_t host, uint32_t nic) const;
  uint32_t nic_out(uint32_t host, uint32_t nic) const { return base(host) + 2 * nic; }
  uint32_t nic_in(uint32_t host, uint32_t nic) const { return base(host) + 2 * nic + 1; }
  uint32_t nvlink_out(uint32_t host, uint32_t gpu) const { return base(host) + 2 * (nics_ + gpu); }
  uint32_t nvlink_in(uint32_t host, uint32_t gpu) const { return nvlink_out(host, gpu) + 1; }
  uint32_t uplink(uint32_t leaf) const { return leaves_.at(leaf); }
  uint32_t downlink(uint32_t leaf) const { return leaves_.at(leaf) + 1; }

  const NicKind& kind(uint32_t host, uint32_t nic) const;
  const Cluster& cluster() const { return cluster_; }
  std::span<const Link> links() const { return links_; }
  // The round trip of a full packet and its acknowledgement, between leaves, in an idle network.
  double round_trip_s() const;
  // Less than a bandwidth-delay product.
  bool is_brief(double bytes) const {
    return bytes < cluster_.nic_kinds.front().rate * round_trip_s();
  }

 private:
  uint32_t base(uint32_t host) const { return places_.at(host); }
  void add_host(uint32_t host);
  void add_leaf(uint32_t host, uint32_t nic);

  const Cluster& cluster_;
  uint32_t nics_ = 0;  // of a host, at most
  uint32_t gpus_ = 0;
  std::map<uint32_t, uint32_t> places_;  // by host: its first link
  std::map<uint32_t, uint32_t> leaves_;  // by leaf: its uplink
  std::vector<Link> links_;
};

}  // namespace pacecar::predict
