#include "net_plugin/predict/cost_table.h"

#include <algorithm>
#include <set>

#include "net_plugin/predict/predict.h"

namespace pacecar::predict {
namespace {

// From 8 bytes to 16 GiB.
constexpr int kSmallest = 3;  // exponents of 2
constexpr int kLargest = 34;
// How many jumps of the time are in the table: later ones are small next to the whole time.
constexpr int kJumps = 8;

std::set<Bytes> sizes_of(double at_once) {
  std::set<Bytes> sizes;
  for (int i = kSmallest; i <= kLargest; ++i) sizes.insert(Bytes{1} << i);
  for (int i = 1; i <= kJumps; ++i) {
    const auto last = static_cast<Bytes>(i * at_once);
    if (last > *sizes.begin() && last < (Bytes{1} << kLargest)) sizes.insert({last, last + 1});
  }
  return sizes;
}

}  // namespace

CostTable::CostTable(const Cluster& cluster, const LibraryCosts& library, const Limits& limits,
                     Wanted wanted)
    : columns_(kOperations * kAlgorithms * kProtocols) {
  Collective what;
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

std::optional<double> CostTable::time_s(Operation operation, Algorithm algorithm, Protocol protocol,
                                        Bytes bytes) const {
  const size_t choice =
      static_cast<size_t>(operation) * kAlgorithms + static_cast<size_t>(algorithm);
  const Column& points = columns_[choice * kProtocols + static_cast<size_t>(protocol)];
  if (points.empty()) return std::nullopt;
  const auto size = static_cast<double>(bytes);
  const auto after = std::ranges::lower_bound(points, size, {}, &Point::bytes);
  if (after == points.begin()) return after->time_s;
  const Point& before = *(after - 1);
  if (after == points.end()) return before.time_s * size / before.bytes;
  const double part = (size - before.bytes) / (after->bytes - before.bytes);
  return before.time_s + (after->time_s - before.time_s) * part;
}

}  // namespace pacecar::predict
