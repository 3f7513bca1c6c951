// Predicts how long a collective takes on a cluster, and what the time is spent on. README.md lists
// the effects that the model covers or leaves out. Times in seconds. Pure.
#pragma once

#include <optional>
#include <vector>

#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/collective.h"
#include "net_plugin/predict/fluid.h"
#include "net_plugin/predict/plan.h"

namespace pacecar::predict {

struct Prediction {
  double time_s = 0;
  double algorithm_rate = 0;           // bytes per second, as nccl-tests define it: bytes over time
  double bus_rate = 0;                 // bytes per second, as nccl-tests define it
  Cause bottleneck = Cause::kLatency;  // the largest of `terms`
  Terms terms{};                       // along the critical path; their sum is the time
  Messages messages;                   // none for algorithms without chunks
};

// The ranks that take part: all GPUs of the collective's hosts.
uint32_t ranks_of(const Cluster& cluster, const Collective& collective);

// Whether NCCL uses the algorithm and protocol: NVLS needs a switch that sums in every host, and
// messages between pairs use LL only if they are small, and never LL128.
bool possible(const Cluster& cluster, const Collective& what);

// Requires a cluster with hosts, each with GPUs and NICs, and rates above 0, and a collective that
// is `supported` and names hosts of the cluster.
Prediction predict(const Cluster& cluster, const Collective& collective,
                   const LibraryCosts& library = nccl_costs(), const Limits& limits = {});

// The times of all algorithms and protocols on a cluster, predicted once for many sizes. A lookup
// reads memory and interpolates. Thread rule: immutable once made; any thread may read it.
class CostTable {
 public:
  // Less exact than predict() with its own limits, but fast enough for a communicator's start.
  static constexpr Limits kQuick{.ranks = 16, .hosts = 16, .pieces = 8, .flows = 1000};

  // Predicts, to save time, only the supported choices that are `wanted`. All hosts take part.
  using Wanted = bool (*)(Operation operation, Algorithm algorithm);
  explicit CostTable(const Cluster& cluster, const LibraryCosts& library = nccl_costs(),
                     const Limits& limits = kQuick, Wanted wanted = supported);

  // None for a choice that was not predicted. Between the sizes of the table the time is
  // interpolated linearly; above them it grows in proportion.
  std::optional<double> time_s(Operation operation, Algorithm algorithm, Protocol protocol,
                               Bytes bytes) const;

 private:
  struct Point {
    double bytes = 0;
    double time_s = 0;
  };
  // By size: powers of two, and both sides of each jump of the time. Empty: not predicted.
  using Column = std::vector<Point>;

  std::vector<Column> columns_;
};

}  // namespace pacecar::predict
