// A collective of a library like NCCL as flows for the packet simulator: with its algorithms,
// chunks and slots, and the time of a GPU for each step. One GPU per host. Shares no code with the
// predictor's plans, which it judges.
#pragma once

#include <cstdint>

#include "bench/workload/workload.h"
#include "net_plugin/predict/collective.h"

namespace pacecar::predict {

struct LibraryFlows {
  uint32_t hosts = 8;
  uint32_t nics = 1;  // of a host, with a channel each; NIC i of host h is host h*nics+i of the run
  Operation operation{};
  Algorithm algorithm{};
  Bytes bytes = 0;
  ProtocolCosts costs;
};

Workload library_workload(const LibraryFlows& what);

// A lower bound of the time in seconds: of the sends of a NIC of `rate` (bytes per second), or of
// the steps.
double least_s(const LibraryFlows& what, double rate);

}  // namespace pacecar::predict
