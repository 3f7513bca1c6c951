#include "net_plugin/tuner/tuner.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

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

// Only those of which predictions were held against the packet simulator: NVLS is not among them,
// and CollNet is none of ours.
constexpr std::array<std::optional<Algorithm>, nccl::kTunedAlgorithms> kAlgorithms{
    Algorithm::kTree, Algorithm::kRing, {}, {}, {}, {}, Algorithm::kPat};

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

std::string text_of(const Pick& pick) {
  return fmt::format("{} {} in {:.1f} us", kAlgorithmNames[static_cast<size_t>(pick.algorithm)],
                     kProtocolNames[static_cast<size_t>(pick.protocol)], pick.time_us);
}

Tuner::Tuner(const predict::Cluster& cluster, const predict::LibraryCosts& library)
    : table_(cluster, {}, 0, library) {}

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
    const auto time_s = table_.time_s(operation, *algorithm, protocol, call.bytes);
    if (!time_s) return false;
    times[static_cast<size_t>(i)] = static_cast<float>(*time_s * 1e6);
  }
  for (int i = 0; i < entries; ++i) {
    if (costs.entries[i] != kRuledOut) costs.entries[i] = times[static_cast<size_t>(i)];
  }
  return true;
}

}  // namespace pacecar::tuner
