// NCCL's own model of what a collective takes: the formulas and constants of NVIDIA/nccl,
// src/graph/tuning.cc (2.28), as far as they apply to one GPU per host, Ampere, Intel processors.
// Pure. Bandwidths in GB/s, times in microseconds, as there.
#pragma once

#include <cstdint>

#include "net_plugin/abi/tuner.h"
#include "transport/base/units.h"

namespace pacecar::predict {

// What NCCL knows of the network.
struct NcclNetwork {
  uint32_t hosts = 8;
  uint32_t nics = 1;
  double nic_gb_per_s = 3.125;  // of each
};

// kRuledOut where NCCL has no such algorithm.
float nccl_time_us(const NcclNetwork& network, nccl::TunedFunction function,
                   nccl::TunedAlgorithm algorithm, nccl::TunedProtocol protocol, Bytes bytes);

}  // namespace pacecar::predict
