// All choices that a communicator has, predicted once: how long does each take for so many bytes,
// and which is the fastest? Lookups read memory and compute a few numbers.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/collective.h"
#include "net_plugin/predict/library_costs.h"
#include "net_plugin/predict/plan.h"

namespace pacecar::predict {

struct Choice {
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;
  double time_s = 0;
};

// Immutable once made: any thread may read it.
class CostTable {
 public:
  static constexpr int kSmallest = 3;  // exponents of 2: 8 bytes
  static constexpr int kLargest = 34;  // 16 GiB
  // Less exact than predict() alone, and so fast that a communicator does not wait for it.
  static constexpr Limits kQuick{.ranks = 16, .hosts = 16, .pieces = 8, .flows = 1000};

  // `hosts` take part, in the order of their ranks; empty: all of the cluster. `channels` as in
  // Collective.
  // Only what is `wanted`, among what is supported, is predicted: it takes the less time.
  using Wanted = bool (*)(Operation operation, Algorithm algorithm);
  CostTable(const Cluster& cluster, std::span<const uint32_t> hosts, uint32_t channels,
            const LibraryCosts& library = nccl_costs(), const Limits& limits = kQuick,
            Wanted wanted = supported);

  // Seconds; none where there is no such algorithm for this operation. Between the table's sizes
  // times are taken to grow evenly; beyond them, in proportion.
  std::optional<double> time_s(Operation operation, Algorithm algorithm, Protocol protocol,
                               Bytes bytes) const;
  // The fastest of those that NCCL has; kHierarchical is not among them.
  Choice best(Operation operation, Bytes bytes) const;

 private:
  struct Point {
    double bytes = 0;
    double time_s = 0;
  };
  // By size: powers of two, and both sides of where the time jumps. Empty: not predicted.
  using Column = std::vector<Point>;

  const Column& column(Operation operation, Algorithm algorithm, Protocol protocol) const;

  std::vector<Column> columns_;
};

}  // namespace pacecar::predict
