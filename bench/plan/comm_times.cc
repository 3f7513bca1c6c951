#include "bench/plan/comm_times.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "net_plugin/predict/predict.h"

namespace pacecar::plan {
namespace {

using predict::Algorithm;
using predict::Operation;
using predict::Protocol;

// The NICs of a group: its own ones, or its share of one.
void add_nics(const predict::Cluster& all, const RankGroup& group, predict::HostGroup& host,
              predict::Cluster& cluster) {
  const auto nics = static_cast<uint32_t>(host.nics.size());
  const uint32_t own = std::max(1U, nics / group.sharing);
  const double share = std::min(1.0, static_cast<double>(nics) / group.sharing);
  std::vector<uint32_t> kinds;
  for (uint32_t i = 0; i < own; ++i) {
    predict::NicKind kind = all.nic_kinds[host.nics[i]];
    kind.rate *= share;
    kinds.push_back(static_cast<uint32_t>(cluster.nic_kinds.size()));
    cluster.nic_kinds.push_back(kind);
  }
  host.nics = kinds;
}

predict::Cluster cluster_of(const predict::Cluster& all, Operation operation,
                            const RankGroup& group) {
  predict::Cluster cluster = all;
  cluster.nic_kinds.clear();
  cluster.groups.clear();
  predict::HostGroup hosts = all.groups[group.kind];
  hosts.hosts = group.hosts;
  hosts.gpus = group.per_host;
  add_nics(all, group, hosts, cluster);
  cluster.groups.push_back(hosts);
  if (operation == Operation::kSendRecv && group.per_host == 1) {
    predict::HostGroup others = all.groups[group.other];
    others.hosts = 1;
    others.gpus = 1;
    add_nics(all, group, others, cluster);
    cluster.groups.push_back(others);
    // Consecutive stages may be on different leaves.
    if (cluster.fabric.hosts_per_leaf > 0) cluster.fabric.hosts_per_leaf = 1;
  }
  return cluster;
}

}  // namespace

double CommTimes::time_s(Operation operation, const RankGroup& group, double bytes) {
  const bool pair = operation == Operation::kSendRecv;
  if ((group.hosts * group.per_host < 2 && !pair) || bytes <= 0) return 0;
  const Key key{operation, group};
  const auto [found, fresh] = columns_.try_emplace(key);
  if (fresh) found->second.fill(-1);
  Column& column = found->second;
  const double exponent = std::log2(bytes);
  if (exponent <= kSmallest) return at(column, key, kSmallest);
  if (exponent >= kLargest) return at(column, key, kLargest) * bytes / std::exp2(kLargest);
  const int below = static_cast<int>(exponent);
  const double begin = at(column, key, below);
  const double end = at(column, key, below + 1);
  return begin + (end - begin) * (bytes / std::exp2(below) - 1);
}

double CommTimes::at(Column& column, const Key& key, int exponent) {
  double& time = column[static_cast<size_t>(exponent - kSmallest)];
  if (time >= 0) return time;
  const predict::Cluster cluster = cluster_of(cluster_, key.operation, key.group);
  time = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < predict::kAlgorithms * predict::kProtocols; ++i) {
    const auto algorithm = static_cast<Algorithm>(i / predict::kProtocols);
    if (!predict::possible(cluster, key.operation, algorithm) ||
        algorithm == Algorithm::kHierarchical || algorithm == Algorithm::kPat) {
      continue;
    }
    const predict::Collective what{.operation = key.operation,
                                   .algorithm = algorithm,
                                   .protocol = static_cast<Protocol>(i % predict::kProtocols),
                                   .bytes = static_cast<Bytes>(std::exp2(exponent))};
    const auto found = predict::predict(cluster, what, library_, predict::CostTable::kQuick);
    time = std::min(time, found.time_s);
  }
  return time;
}

}  // namespace pacecar::plan
