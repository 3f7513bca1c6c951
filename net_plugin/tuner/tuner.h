// The predicted times of a communicator's collectives by each algorithm and protocol of NCCL, in
// NCCL's numbers and units, from this process's knowledge of the job's cluster. All ranks must make
// the same choices, or the job hangs; and a rank cannot ask the others. So only facts that are the
// same on equal hosts count, and no measurements. Pure, but for Tuners; any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net_plugin/abi/tuner.h"
#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/predict.h"
#include "transport/base/result.h"

namespace pacecar::tuner {

// Our NIC. `rate`: bytes per second; `packet_bytes`: payload of a full packet; either 0: not known.
predict::NicKind nic_kind(std::string name, double rate, double packet_bytes);

struct Facts {
  size_t ranks = 0;
  size_t nodes = 0;
  std::vector<predict::NicKind> nics;  // of this host; the others are assumed to be equal
  std::optional<size_t> ranks_per_nvlink_domain;  // of the largest domain
  // Set by the user; 0: unknown.
  uint32_t oversubscription = 0;  // of leaf switches
  uint32_t hosts_per_leaf = 0;
  double cable_delay_s = 0;  // of a cable, and the switch behind it
};

struct PossibleCluster {
  predict::Cluster cluster;
  double probability = 1;
};

// The possible clusters. Where the user has not described the switches: with rails, leaves that are
// not oversubscribed; else one switch for all hosts, or, half as likely, leaves with a quarter of
// the uplinks. The GPUs' own links are assumed not to be the bottleneck. Errors: kNotFound,
// naming the fact that is unknown or does not fit; NCCL's own choices stand then.
Result<std::vector<PossibleCluster>> clusters_of(const Facts& facts);

// A call of NCCL.
struct Call {
  nccl::TunedFunction function{};
  size_t bytes = 0;
  int operations = 1;  // that NCCL would launch together
};

// NCCL's table: rows by algorithm, columns by protocol.
struct CostView {
  float* entries = nullptr;
  int algorithms = 0;
  int protocols = 0;

  float& at(int algorithm, int protocol) const { return entries[algorithm * protocols + protocol]; }
};

struct Pick {
  nccl::TunedAlgorithm algorithm{};
  nccl::TunedProtocol protocol{};
  float time_us = 0;

  bool operator==(const Pick&) const = default;
};

// The entry that NCCL takes: the smallest not ruled out, first of equals. nullopt: none is left.
std::optional<Pick> fastest(const CostView& costs);
// As NCCL writes them.
inline constexpr std::array<std::string_view, nccl::kTunedAlgorithms> kAlgorithmNames{
    "Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"};
inline constexpr std::array<std::string_view, nccl::kTunedProtocols> kProtocolNames{"LL", "LL128",
                                                                                    "Simple"};
constexpr std::string_view name_of(nccl::TunedAlgorithm algorithm) {
  return kAlgorithmNames[static_cast<size_t>(algorithm)];
}
constexpr std::string_view name_of(nccl::TunedProtocol protocol) {
  return kProtocolNames[static_cast<size_t>(protocol)];
}

class Tuner {
 public:
  // The cluster is one of `possible`: times are means over them.
  explicit Tuner(std::span<const PossibleCluster> possible,
                 const predict::LibraryCosts& library = predict::nccl_costs());

  // Writes the predicted times into all entries that NCCL has not ruled out. False, without a
  // change, for an unknown operation, algorithm or table, for no bytes, or for several operations
  // at once. All entries or none: the times of two models cannot be compared.
  bool fill(const Call& call, const CostView& costs) const;

 private:
  struct Table {
    predict::CostTable costs;
    double probability;
  };

  std::vector<Table> tables_;
};

// The tuner of one communicator.
struct Tuning {
  Tuning(Tuner what, bool only_observes) : tuner(std::move(what)), observes(only_observes) {}

  const Tuner tuner;
  const bool observes;  // logs its choice, and leaves the decision to NCCL
  // By function: a bit for each power of two of bytes that was logged.
  std::array<std::atomic<uint64_t>, nccl::kTunedFunctions> logged{};
};

// The communicators' tuners by number, which NCCL holds as contexts. A number is looked up, never
// dereferenced, and never used again: a call after finalize, or with garbage, finds nothing.
class Tuners {
 public:
  void* open(std::shared_ptr<Tuning> tuning) {
    const std::lock_guard lock(mutex_);
    tunings_.emplace(++last_, std::move(tuning));
    return reinterpret_cast<void*>(last_);
  }
  void close(const void* context) {
    const std::lock_guard lock(mutex_);
    tunings_.erase(reinterpret_cast<uintptr_t>(context));
  }
  // nullptr: unknown context.
  std::shared_ptr<Tuning> find(const void* context) const {
    const std::lock_guard lock(mutex_);
    const auto found = tunings_.find(reinterpret_cast<uintptr_t>(context));
    return found == tunings_.end() ? nullptr : found->second;
  }

 private:
  mutable std::mutex mutex_;
  uintptr_t last_ = 0;
  std::map<uintptr_t, std::shared_ptr<Tuning>> tunings_;
};

}  // namespace pacecar::tuner
