// Random choices that NCCL has: a network, an operation, a size. Each as the packet simulator runs
// it, as the tuner sees it, and as NCCL's own model does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/sim/run_spec.h"
#include "net_plugin/abi/tuner.h"
#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/library_costs.h"
#include "net_plugin/tuner/facts.h"
#include "transport/base/result.h"
#include "transport/base/units.h"

namespace pacecar::predict {

// NCCL's own model of what a collective takes: the formulas and constants of NVIDIA/nccl,
// src/graph/tuning.cc (2.28), as far as they apply to one GPU per host, Ampere, Intel processors.
// Pure. Bandwidths in GB/s, times in microseconds, as there.

// What NCCL knows of the network.
struct NcclNetwork {
  uint32_t hosts = 8;
  uint32_t nics = 1;
  double nic_gb_per_s = 3.125;  // of each
};

// kRuledOut where NCCL has no such algorithm.
float nccl_time_us(const NcclNetwork& network, nccl::TunedFunction function,
                   nccl::TunedAlgorithm algorithm, nccl::TunedProtocol protocol, Bytes bytes);

struct ChoiceCase {
  std::string fabric;  // "ethernet", "two rails", "oversubscribed"
  std::string name;
  RunSpec run;  // without its workload
  uint32_t hosts = 8;
  uint32_t nics = 1;  // of a host, each on a rail of its own
  double nic_rate = 0;
  nccl::TunedFunction function{};
  Bytes bytes = 0;
  std::vector<tuner::PossibleCluster> known;  // as the plugin knows it: its NICs, not the network
  std::vector<tuner::PossibleCluster> told;   // where the user has described the network, too
  NcclNetwork nccl;
  LibraryCosts assumed;  // by the tuner
  LibraryCosts real;     // of the library that is simulated
};

struct ChoiceLimits {
  uint32_t hosts = 64;
  Bytes bytes = 64'000'000;
  // The real costs of a step are up to so many times what is assumed, or as much less; 1: the same.
  double cost_error = 1;
};

// The same seed and limits draw the same case. Errors: those of the simulator's topologies.
Result<ChoiceCase> draw_choice(uint64_t seed, const ChoiceLimits& limits);

}  // namespace pacecar::predict
