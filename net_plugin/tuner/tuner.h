// The predicted times of a communicator's collectives by each algorithm and protocol of NCCL, in
// NCCL's numbers and units. Pure; immutable once made, any thread.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "net_plugin/abi/tuner.h"
#include "net_plugin/predict/predict.h"
#include "net_plugin/tuner/facts.h"

namespace pacecar::tuner {

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

// The entry that NCCL takes: the smallest that is not ruled out, the first of equals. nullopt: all
// are ruled out.
std::optional<Pick> fastest(const CostView& costs);
// As NCCL writes them: "Ring", "LL128".
std::string_view name_of(nccl::TunedAlgorithm algorithm);
std::string_view name_of(nccl::TunedProtocol protocol);

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

}  // namespace pacecar::tuner
