#include "net_plugin/predict/cost_table.h"

#include <algorithm>
#include <bit>

#include "net_plugin/predict/predict.h"

namespace pacecar::predict {
namespace {

size_t index(Operation operation, Algorithm algorithm, Protocol protocol) {
  return (static_cast<size_t>(operation) * kAlgorithms + static_cast<size_t>(algorithm)) *
             kProtocols +
         static_cast<size_t>(protocol);
}

}  // namespace

CostTable::CostTable(const Cluster& cluster, std::span<const uint32_t> hosts, uint32_t channels,
                     const LibraryCosts& library, const Limits& limits, Wanted wanted)
    : columns_(kOperations * kAlgorithms * kProtocols) {
  Collective what{.channels = channels, .hosts = {hosts.begin(), hosts.end()}};
  for (size_t i = 0; i < columns_.size(); ++i) {
    what.operation = static_cast<Operation>(i / kProtocols / kAlgorithms);
    what.algorithm = static_cast<Algorithm>(i / kProtocols % kAlgorithms);
    what.protocol = static_cast<Protocol>(i % kProtocols);
    columns_[i].fill(0);
    if (!supported(what.operation, what.algorithm) || !wanted(what.operation, what.algorithm))
      continue;
    for (size_t size = 0; size < kSizes; ++size) {
      what.bytes = Bytes{1} << (kSmallest + size);
      columns_[i][size] = static_cast<float>(predict(cluster, what, library, limits).time_s);
    }
  }
}

const CostTable::Column& CostTable::column(Operation operation, Algorithm algorithm,
                                           Protocol protocol) const {
  return columns_[index(operation, algorithm, protocol)];
}

std::optional<double> CostTable::time_s(Operation operation, Algorithm algorithm, Protocol protocol,
                                        Bytes bytes) const {
  const Column& times = column(operation, algorithm, protocol);
  if (times[0] == 0) return std::nullopt;
  constexpr Bytes kLeast = Bytes{1} << kSmallest;
  if (bytes <= kLeast) return times[0];
  const int below = std::bit_width(bytes) - 1;
  const double begin = static_cast<double>(Bytes{1} << below);
  if (below >= kLargest)
    return times.back() * (static_cast<double>(bytes) / (double(Bytes{1} << kLargest)));
  const size_t i = static_cast<size_t>(below - kSmallest);
  return times[i] + (times[i + 1] - times[i]) * (static_cast<double>(bytes) - begin) / begin;
}

Choice CostTable::best(Operation operation, Bytes bytes) const {
  Choice best;
  for (size_t i = 0; i < kAlgorithms * kProtocols; ++i) {
    const auto algorithm = static_cast<Algorithm>(i / kProtocols);
    const auto protocol = static_cast<Protocol>(i % kProtocols);
    if (algorithm == Algorithm::kHierarchical) continue;
    const auto time = time_s(operation, algorithm, protocol, bytes);
    if (time && (best.time_s == 0 || *time < best.time_s)) best = {algorithm, protocol, *time};
  }
  return best;
}

}  // namespace pacecar::predict
