// Predicts how long a collective takes on a cluster, and what the time is spent on. README.md lists
// what is modelled and what is not. Times in seconds. Pure.
#pragma once

#include <span>
#include <vector>

#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/collective.h"
#include "net_plugin/predict/fluid.h"
#include "net_plugin/predict/library_costs.h"
#include "net_plugin/predict/plan.h"

namespace pacecar::predict {

struct Prediction {
  double time_s = 0;
  double algorithm_rate = 0;           // bytes per second, as nccl-tests define it: bytes over time
  double bus_rate = 0;                 // likewise
  Cause bottleneck = Cause::kLatency;  // the largest of `terms`
  Terms terms{};                       // along the critical path; their sum is the time
};

// The ranks that take part: all GPUs of the collective's hosts.
uint32_t ranks_of(const Cluster& cluster, const Collective& collective);

// Whether the library can use the algorithm: NVLS needs a switch that sums in every host.
bool possible(const Cluster& cluster, Operation operation, Algorithm algorithm);

// Requires a cluster with hosts, each with GPUs and NICs, and rates above 0, and a collective that
// is `supported` and names hosts of the cluster.
Prediction predict(const Cluster& cluster, const Collective& collective,
                   const LibraryCosts& library = nccl_costs(), const Limits& limits = {});

// The time jumps after each multiple of this number of bytes, as one round or piece more is needed;
// 0: it does not jump.
double bytes_at_once(const Cluster& cluster, const Collective& collective,
                     const LibraryCosts& library, const Limits& limits);

// Predicts several collectives that run at the same time and share links; by collective. Plans all
// steps of all hosts, without Limits.
std::vector<Prediction> predict_together(const Cluster& cluster,
                                         std::span<const Collective> collectives,
                                         const LibraryCosts& library = nccl_costs());

}  // namespace pacecar::predict
