// How long a collective takes on a cluster, and what takes the time: flows that share links by
// max-min, with the latencies of each step. Pure; README.md says what is modelled and what is not.
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
  double algorithm_rate = 0;  // bytes per second, as nccl-tests count: bytes over time
  double bus_rate = 0;
  Cause bottleneck = Cause::kLatency;  // the largest of `terms`
  Terms terms{};                       // along the critical path; their sum is the time
};

// Ranks that take part: all GPUs of its hosts.
uint32_t ranks_of(const Cluster& cluster, const Collective& collective);

// The cluster has hosts, each with GPUs and NICs, and rates above 0; the collective is `supported`
// and names hosts of the cluster.
Prediction predict(const Cluster& cluster, const Collective& collective,
                   const LibraryCosts& library = nccl_costs(), const Limits& limits = {});

// Multiples of so many bytes are where the time jumps, as there is one round or piece more for more
// bytes; 0: nowhere.
double bytes_at_once(const Cluster& cluster, const Collective& collective,
                     const LibraryCosts& library, const Limits& limits);

// Several at the same time, which meet on the links; by collective. All steps of all are planned,
// so that `limits` count for nothing.
std::vector<Prediction> predict_together(const Cluster& cluster,
                                         std::span<const Collective> collectives,
                                         const LibraryCosts& library = nccl_costs());

}  // namespace pacecar::predict
