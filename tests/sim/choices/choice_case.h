// Random cases for NCCL's choice of algorithm and protocol: a network, an operation, a size. Each
// as the packet simulator, the tuner and NCCL's own model take it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/sim/run_spec.h"
#include "net_plugin/abi/tuner.h"
#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/collective.h"
#include "net_plugin/tuner/tuner.h"
#include "transport/base/result.h"
#include "transport/base/units.h"

namespace pacecar::predict {

struct ChoiceNetwork {
  uint32_t hosts = 8;  // of one GPU each
  uint32_t per_leaf = 8;
  uint32_t nics = 1;  // of a host, each on a rail of its own
  uint32_t oversubscription = 1;
  uint32_t gbps = 25;  // of a NIC
  Duration delay;      // of a cable
};

// The time of a collective by NCCL's own model: the formulas and constants of NVIDIA/nccl,
// src/graph/tuning.cc (2.28), as far as they apply to one GPU per host, Ampere and Intel
// processors. NCCL knows the hosts and NICs, not the switches. kRuledOut where NCCL has no such
// algorithm.
float nccl_time_us(const ChoiceNetwork& network, nccl::TunedFunction function,
                   nccl::TunedAlgorithm algorithm, nccl::TunedProtocol protocol, Bytes bytes);

struct ChoiceCase {
  std::string fabric;  // "Ethernet at 25G", "two rails", "oversubscribed"
  std::string name;
  RunSpec run;  // without its workload
  ChoiceNetwork network;
  nccl::TunedFunction function{};
  Bytes bytes = 0;
  std::vector<tuner::PossibleCluster> known;      // the plugin knows the NICs, not the network
  std::vector<tuner::PossibleCluster> described;  // the user has described the network as well
  LibraryCosts assumed;                           // by the tuner
  LibraryCosts real;                              // of the simulated library
};

struct ChoiceLimits {
  uint32_t hosts = 64;
  Bytes bytes = 64'000'000;
  // A real step costs up to this many times the assumed one, or this many times less.
  double cost_error = 1;
};

// The same seed and limits draw the same case. Errors: as for the simulator's topologies.
Result<ChoiceCase> draw_choice(uint64_t seed, const ChoiceLimits& limits);

}  // namespace pacecar::predict
