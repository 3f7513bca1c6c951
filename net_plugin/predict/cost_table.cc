#include "net_plugin/predict/cost_table.h"

#include <algorithm>

#include "net_plugin/predict/predict.h"

namespace pacecar::predict {
namespace {

size_t index(Operation operation, Algorithm algorithm, Protocol protocol) {
  return (static_cast<size_t>(operation) * kAlgorithms + static_cast<size_t>(algorithm)) *
             kProtocols +
         static_cast<size_t>(protocol);
}

// The first rounds, or pieces, of which another one costs much.
constexpr int kJumps = 8;

std::vector<Bytes> sizes_of(double at_once) {
  std::vector<Bytes> sizes;
  for (int i = CostTable::kSmallest; i <= CostTable::kLargest; ++i) sizes.push_back(Bytes{1} << i);
  for (int i = 1; i <= kJumps; ++i) {
    const auto last = static_cast<Bytes>(i * at_once);
    if (last > sizes.front() && last < (Bytes{1} << CostTable::kLargest))
      sizes.insert(sizes.end(), {last, last + 1});
  }
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
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
    if (!supported(what.operation, what.algorithm) || !wanted(what.operation, what.algorithm))
      continue;
    for (const Bytes bytes : sizes_of(bytes_at_once(cluster, what, library, limits))) {
      what.bytes = bytes;
      columns_[i].push_back(
          {static_cast<double>(bytes), predict(cluster, what, library, limits).time_s});
    }
  }
}

const CostTable::Column& CostTable::column(Operation operation, Algorithm algorithm,
                                           Protocol protocol) const {
  return columns_[index(operation, algorithm, protocol)];
}

std::optional<double> CostTable::time_s(Operation operation, Algorithm algorithm, Protocol protocol,
                                        Bytes bytes) const {
  const Column& points = column(operation, algorithm, protocol);
  if (points.empty()) return std::nullopt;
  const auto size = static_cast<double>(bytes);
  const auto after = std::ranges::lower_bound(points, size, {}, &Point::bytes);
  if (after == points.begin()) return after->time_s;
  const Point& before = *(after - 1);
  if (after == points.end()) return before.time_s * size / before.bytes;
  const double part = (size - before.bytes) / (after->bytes - before.bytes);
  return before.time_s + (after->time_s - before.time_s) * part;
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
