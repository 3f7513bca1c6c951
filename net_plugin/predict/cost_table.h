// The times of all algorithms and protocols on a cluster, predicted once for many sizes. A lookup
// reads memory and interpolates. Times in seconds.
//
// Thread rule: immutable once made; any thread may read it.
#pragma once

#include <optional>
#include <vector>

#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/collective.h"
#include "net_plugin/predict/library_costs.h"
#include "net_plugin/predict/plan.h"

namespace pacecar::predict {

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
