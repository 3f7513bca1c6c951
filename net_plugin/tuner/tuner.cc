#include "net_plugin/tuner/tuner.h"

#include <algorithm>

namespace pacecar::tuner {
namespace {

using nccl::kRuledOut;
using predict::Algorithm;
using predict::Operation;
using predict::Protocol;

// Seconds from a post to the poll of its completion. bench/log has measurements of the software
// NIC; that of RDMA NICs is the order of magnitude that their vendors give.
constexpr double kSoftwareLatency = 4e-6;
constexpr double kHardwareLatency = 1e-6;

// Assumptions about leaf switches.
constexpr uint32_t kHostsPerLeaf = 4;
constexpr uint32_t kOversubscription = 4;
constexpr double kOversubscribed = 1.0 / 3;  // probability of that oversubscription

tl::unexpected<Error> unknown(std::string reason) {
  return fail(ErrorCode::kNotFound, std::move(reason));
}

constexpr std::array kOperations{Operation::kBroadcast, Operation::kReduce, Operation::kAllGather,
                                 Operation::kReduceScatter, Operation::kAllReduce};
constexpr std::array kProtocols{Protocol::kLl, Protocol::kLl128, Protocol::kSimple};
static_assert(kOperations.size() == nccl::kTunedFunctions);
static_assert(kProtocols.size() == nccl::kTunedProtocols);

// Only algorithms whose predictions were compared with the packet simulator: not NVLS; CollNet is
// not supported.
constexpr std::array<std::optional<Algorithm>, nccl::kTunedAlgorithms> kAlgorithms{
    Algorithm::kTree, Algorithm::kRing, {}, {}, {}, {}, Algorithm::kPat};

// Trees for all-reduce alone, as NCCL has them.
bool is_judged(Operation operation, Algorithm algorithm) {
  if (algorithm == Algorithm::kTree) return operation == Operation::kAllReduce;
  return std::find(kOperations.begin(), kOperations.end(), operation) != kOperations.end() &&
         std::find(kAlgorithms.begin(), kAlgorithms.end(), algorithm) != kAlgorithms.end();
}

// More pieces than NCCL's slots, as a tree slows down when they fill; enough hosts for two leaves.
constexpr predict::Limits kLimits{.ranks = 16, .hosts = 8, .pieces = 24, .flows = 500};

bool is_known(const Call& call, const CostView& costs) {
  const auto function = static_cast<int>(call.function);
  return function >= 0 && function < nccl::kTunedFunctions && call.bytes > 0 &&
         call.operations == 1 && costs.entries != nullptr && costs.algorithms > 0 &&
         costs.algorithms <= nccl::kTunedAlgorithms && costs.protocols > 0 &&
         costs.protocols <= nccl::kTunedProtocols;
}

}  // namespace

predict::NicKind nic_kind(std::string name, double rate, double packet_bytes) {
  predict::NicKind kind;
  kind.latency_s = name.starts_with("soft:") ? kSoftwareLatency : kHardwareLatency;
  kind.name = std::move(name);
  kind.rate = rate;
  if (packet_bytes > 0) kind.packet_bytes = packet_bytes;
  return kind;
}

Result<std::vector<PossibleCluster>> clusters_of(const Facts& facts) {
  if (facts.nodes < 2) return unknown("the communicator does not leave its host");
  if (facts.ranks % facts.nodes != 0) return unknown("hosts have different numbers of ranks");
  const size_t gpus = facts.ranks / facts.nodes;
  if (gpus == 0) return unknown("there are more hosts than ranks");
  if (facts.ranks_per_nvlink_domain.value_or(gpus) > gpus) return unknown("NVLink joins hosts");
  if (facts.nics.empty()) return unknown("no NIC of ours is open");
  if (facts.nics.size() > 2 * gpus) {
    return unknown("it is not known which of so many NICs so few ranks use");
  }
  predict::Cluster one_switch;
  one_switch.nic_kinds.clear();
  one_switch.groups = {{.hosts = static_cast<uint32_t>(facts.nodes),
                        .gpus = static_cast<uint32_t>(gpus),
                        .nics = {}}};
  for (const predict::NicKind& nic : facts.nics) {
    if (nic.rate <= 0) {
      return unknown("the rate of " + nic.name + " is not known; PACECAR_LINE_RATE sets it");
    }
    one_switch.groups[0].nics.push_back(static_cast<uint32_t>(one_switch.nic_kinds.size()));
    one_switch.nic_kinds.push_back(nic);
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

std::optional<Pick> fastest(const CostView& costs) {
  std::optional<Pick> found;
  for (int algorithm = 0; algorithm < costs.algorithms; ++algorithm) {
    for (int protocol = 0; protocol < costs.protocols; ++protocol) {
      const float time_us = costs.at(algorithm, protocol);
      if (time_us < 0 || (found && time_us >= found->time_us)) continue;
      found = {static_cast<nccl::TunedAlgorithm>(algorithm),
               static_cast<nccl::TunedProtocol>(protocol), time_us};
    }
  }
  return found;
}

Tuner::Tuner(std::span<const PossibleCluster> possible, const predict::LibraryCosts& library) {
  for (const auto& [cluster, probability] : possible) {
    tables_.push_back({predict::CostTable(cluster, library, kLimits, is_judged), probability});
  }
}

bool Tuner::fill(const Call& call, const CostView& costs) const {
  if (!is_known(call, costs)) return false;
  const Operation operation = kOperations[static_cast<size_t>(call.function)];
  std::array<float, nccl::kTunedAlgorithms * nccl::kTunedProtocols> times{};
  const int entries = costs.algorithms * costs.protocols;
  for (int i = 0; i < entries; ++i) {
    if (costs.entries[i] == kRuledOut) continue;
    const auto algorithm = kAlgorithms[static_cast<size_t>(i / costs.protocols)];
    if (!algorithm) return false;
    const Protocol protocol = kProtocols[static_cast<size_t>(i % costs.protocols)];
    double mean_s = 0;
    for (const auto& [table, probability] : tables_) {
      const auto time_s = table.time_s(operation, *algorithm, protocol, call.bytes);
      if (!time_s) return false;
      mean_s += probability * *time_s;
    }
    times[static_cast<size_t>(i)] = static_cast<float>(mean_s * 1e6);
  }
  for (int i = 0; i < entries; ++i) {
    if (costs.entries[i] != kRuledOut) costs.entries[i] = times[static_cast<size_t>(i)];
  }
  return true;
}

}  // namespace pacecar::tuner
