// A collective as a library like NCCL carries it out, as flows for the packet simulator: its
// algorithms, its chunks and slots, and the time that a GPU takes for each step. Written apart from
// the predictor's plans, which it judges; one GPU per host.
#pragma once

#include <cstdint>

#include "bench/workload/workload.h"
#include "net_plugin/predict/collective.h"
#include "net_plugin/predict/library_costs.h"

namespace pacecar::predict {

struct LibraryFlows {
  uint32_t hosts = 8;
  uint32_t nics = 1;  // of each host, a channel on each; host h's NIC i is the simulator's h*nics+i
  Operation operation{};
  Algorithm algorithm{};
  Bytes bytes = 0;
  ProtocolCosts costs;
};

Workload library_workload(const LibraryFlows& what);

// No run is faster: seconds that a NIC of `rate` (bytes per second) sends for, or the steps' own.
double least_s(const LibraryFlows& what, double rate);

}  // namespace pacecar::predict
