#include "net_plugin/tuner/facts.h"

#include <algorithm>

namespace pacecar::tuner {
namespace {

// Seconds from a post to the poll of its completion. bench/README.md has measurements of the
// software NIC; that of RDMA NICs is the order of magnitude that their vendors give.
constexpr double kSoftwareLatency = 4e-6;
constexpr double kHardwareLatency = 1e-6;

// Assumptions about leaf switches.
constexpr uint32_t kHostsPerLeaf = 4;
constexpr uint32_t kOversubscription = 4;
constexpr double kOversubscribed = 1.0 / 3;  // probability of that oversubscription

predict::NicKind kind_of(const NicFacts& facts) {
  predict::NicKind kind;
  kind.name = facts.name;
  kind.rate = facts.rate;
  if (facts.packet_bytes > 0) kind.packet_bytes = facts.packet_bytes;
  kind.latency_s = facts.software ? kSoftwareLatency : kHardwareLatency;
  return kind;
}

tl::unexpected<Error> doubt(std::string reason) {
  return fail(ErrorCode::kNotFound, std::move(reason));
}

}  // namespace

Result<std::vector<PossibleCluster>> clusters_of(const Facts& facts) {
  if (facts.nodes < 2) return doubt("the communicator does not leave its host");
  if (facts.ranks % facts.nodes != 0) return doubt("hosts have different numbers of ranks");
  const size_t gpus = facts.ranks / facts.nodes;
  if (gpus == 0) return doubt("there are more hosts than ranks");
  if (facts.ranks_per_nvlink_domain.value_or(gpus) > gpus) return doubt("NVLink joins hosts");
  if (facts.nics.empty()) return doubt("no NIC of ours is open");
  if (facts.nics.size() > 2 * gpus) {
    return doubt("it is not known which of so many NICs so few ranks use");
  }
  predict::Cluster one_switch;
  one_switch.nic_kinds.clear();
  one_switch.groups = {{.hosts = static_cast<uint32_t>(facts.nodes),
                        .gpus = static_cast<uint32_t>(gpus),
                        .nics = {}}};
  for (const NicFacts& nic : facts.nics) {
    if (nic.rate <= 0) {
      return doubt("the rate of " + nic.name + " is not known; PACECAR_LINE_RATE sets it");
    }
    one_switch.groups[0].nics.push_back(static_cast<uint32_t>(one_switch.nic_kinds.size()));
    one_switch.nic_kinds.push_back(kind_of(nic));
  }
  if (facts.cable_delay_s > 0) one_switch.fabric.cable_latency_s = facts.cable_delay_s;
  predict::Cluster leaves = one_switch;
  leaves.fabric.hosts_per_leaf =
      facts.hosts_per_leaf != 0
          ? facts.hosts_per_leaf
          : std::clamp(static_cast<uint32_t>(facts.nodes / 2), 1U, kHostsPerLeaf);
  leaves.fabric.rails = facts.nics.size() > 1;
  if (facts.oversubscription != 0) {
    leaves.fabric.oversubscription = facts.oversubscription;
    return std::vector{PossibleCluster{std::move(leaves)}};
  }
  // A network with a leaf for each rail is assumed to have uplinks to match.
  if (leaves.fabric.rails) return std::vector{PossibleCluster{std::move(leaves)}};
  leaves.fabric.oversubscription = kOversubscription;
  return std::vector<PossibleCluster>{{std::move(one_switch), 1 - kOversubscribed},
                                      {std::move(leaves), kOversubscribed}};
}

}  // namespace pacecar::tuner
