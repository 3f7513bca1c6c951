#include "net_plugin/tuner/tuner.h"

#include <algorithm>
#include <array>

namespace pacecar::tuner {
namespace {

using nccl::kRuledOut;
using predict::Algorithm;
using predict::Operation;
using predict::Protocol;

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

// Far more pieces than NCCL has slots, because a tree slows down as its slots fill; and enough
// hosts for two leaves.
constexpr predict::Limits kLimits{.ranks = 16, .hosts = 8, .pieces = 24, .flows = 500};

constexpr std::array<std::string_view, nccl::kTunedAlgorithms> kAlgorithmNames{
    "Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"};
constexpr std::array<std::string_view, nccl::kTunedProtocols> kProtocolNames{"LL", "LL128",
                                                                             "Simple"};

bool is_known(const Call& call, const CostView& costs) {
  const auto function = static_cast<int>(call.function);
  return function >= 0 && function < nccl::kTunedFunctions && call.bytes > 0 &&
         call.operations == 1 && costs.entries != nullptr && costs.algorithms > 0 &&
         costs.algorithms <= nccl::kTunedAlgorithms && costs.protocols > 0 &&
         costs.protocols <= nccl::kTunedProtocols;
}

}  // namespace

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

std::string_view name_of(nccl::TunedAlgorithm algorithm) {
  return kAlgorithmNames[static_cast<size_t>(algorithm)];
}
std::string_view name_of(nccl::TunedProtocol protocol) {
  return kProtocolNames[static_cast<size_t>(protocol)];
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
