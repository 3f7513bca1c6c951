#include "net_plugin/tuner/facts.h"

#include <algorithm>

namespace pacecar::tuner {
namespace {

// From a post to its poll, where no round trip was measured: bench/README.md has the software
// NIC's; RDMA NICs' is of the order that their vendors give.
constexpr double kSoftwareLatency = 4e-6;
constexpr double kHardwareLatency = 1e-6;

predict::NicKind kind_of(const NicFacts& facts, double ways_s) {
  predict::NicKind kind;
  kind.name = facts.name;
  kind.rate = facts.rate;
  if (facts.packet_bytes > 0) kind.packet_bytes = facts.packet_bytes;
  kind.latency_s = facts.software ? kSoftwareLatency : kHardwareLatency;
  if (facts.round_trip_s > 0) kind.latency_s = std::max(0.0, facts.round_trip_s / 2 - ways_s);
  return kind;
}

tl::unexpected<Error> doubt(std::string reason) {
  return fail(ErrorCode::kNotFound, std::move(reason));
}

}  // namespace

Result<predict::Cluster> cluster_of(const Facts& facts) {
  if (facts.nodes < 2) return doubt("the communicator does not leave its host");
  if (facts.ranks % facts.nodes != 0) return doubt("hosts have different numbers of ranks");
  const size_t gpus = facts.ranks / facts.nodes;
  if (gpus == 0) return doubt("there are more hosts than ranks");
  if (facts.ranks_per_nvlink_domain.value_or(gpus) > gpus) return doubt("NVLink joins hosts");
  if (facts.nics.empty()) return doubt("no NIC of ours is open");
  if (facts.nics.size() > 2 * gpus) {
    return doubt("it is not known which of so many NICs so few ranks use");
  }
  predict::Cluster cluster;
  cluster.nic_kinds.clear();
  cluster.groups = {{.hosts = static_cast<uint32_t>(facts.nodes),
                     .gpus = static_cast<uint32_t>(gpus),
                     .nics = {}}};
  for (const NicFacts& nic : facts.nics) {
    if (nic.rate <= 0) {
      return doubt("the rate of " + nic.name + " is not known; PACECAR_LINE_RATE tells it");
    }
    cluster.groups[0].nics.push_back(static_cast<uint32_t>(cluster.nic_kinds.size()));
    cluster.nic_kinds.push_back(kind_of(nic, 2 * cluster.fabric.cable_latency_s));
  }
  return cluster;
}

}  // namespace pacecar::tuner
