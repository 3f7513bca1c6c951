#include "net_plugin/predict/predict.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace pacecar::predict {
namespace {

uint32_t hosts_of(const Cluster& cluster, const Collective& collective) {
  return collective.hosts.empty() ? cluster.hosts()
                                  : static_cast<uint32_t>(collective.hosts.size());
}

// The first hosts of the first two leaves of each group: they represent a ring of equal hosts.
std::vector<uint32_t> of_two_leaves(const Cluster& cluster, uint32_t ranks) {
  std::vector<uint32_t> hosts;
  const uint32_t wide =
      cluster.fabric.hosts_per_leaf == 0 ? cluster.hosts() : cluster.fabric.hosts_per_leaf;
  uint32_t begin = 0;
  for (const HostGroup& group : cluster.groups) {
    const uint32_t each = std::min(wide, std::max(1U, ranks / (2 * group.gpus)));
    for (uint32_t leaf = 0; leaf < 2; ++leaf) {
      for (uint32_t i = 0; i < each && leaf * wide + i < group.hosts; ++i) {
        hosts.push_back(begin + leaf * wide + i);
      }
    }
    begin += group.hosts;
  }
  return hosts;
}

// The hosts whose flows are planned; they represent the others.
std::vector<uint32_t> representatives(const Cluster& cluster, const Collective& what,
                                      const Limits& limits, uint32_t hosts_max) {
  if (!what.hosts.empty()) return what.hosts;
  const uint32_t all = cluster.hosts();
  const uint32_t gpus = cluster.groups.front().gpus;
  const bool in_turn = goes_in_pieces(what) || what.operation == Operation::kAllToAll ||
                       (what.algorithm == Algorithm::kHierarchical && what.group > gpus);
  const bool spread = what.algorithm == Algorithm::kPat && all <= limits.spread_hosts;
  if (!in_turn && !spread && uint64_t{all} * gpus > limits.ranks) {
    return of_two_leaves(cluster, limits.ranks);
  }
  std::vector<uint32_t> hosts(spread ? all : std::min(all, hosts_max));
  std::iota(hosts.begin(), hosts.end(), 0U);
  return hosts;
}

// The flow of the range that is received last.
const FlowTimes& last_of(std::span<const FlowTimes> times, FlowRange range) {
  return *std::ranges::max_element(times.subspan(range.begin, range.end - range.begin), {},
                                   &FlowTimes::received_s);
}

// The times of the plan's flows, plus what the plan has left out.
Prediction evaluate(const Plan& plan, std::span<const FlowTimes> times) {
  Prediction found;
  found.messages = plan.messages;
  const FlowRange all = plan.flows;
  if (all.begin < all.end) {
    const FlowTimes& last = last_of(times, all);
    found.terms = terms_until(times, static_cast<uint32_t>(&last - times.data()));
    found.time_s = last.received_s;
    if (plan.repeats > 0) {
      const double period =
          last_of(times, plan.late).received_s - last_of(times, plan.early).received_s;
      const double longer = found.time_s + plan.repeats * period;
      for (double& term : found.terms) term *= longer / found.time_s;
      found.time_s = longer;
    }
  }
  if (plan.least_s > found.time_s) {
    found.terms[static_cast<size_t>(plan.least_cause)] += plan.least_s - found.time_s;
    found.time_s = plan.least_s;
  }
  found.terms[static_cast<size_t>(Cause::kLatency)] += plan.extra_s;
  found.time_s += plan.extra_s;
  return found;
}

// Calls use(input) with the representatives and their network.
template <typename Use>
auto with_input(const Cluster& cluster, const Collective& what, const LibraryCosts& library,
                const Limits& limits, uint32_t hosts_max, const Use& use) {
  const auto hosts = representatives(cluster, what, limits, hosts_max);
  const Network network(cluster, hosts);
  return use(PlanInput{.network = network,
                       .collective = what,
                       .overheads = library,
                       .limits = limits,
                       .hosts = hosts,
                       .all_hosts = hosts_of(cluster, what)});
}

struct Evaluated {
  Prediction all;
  Prediction first_pieces;  // without what repeats
};

Evaluated predict_some(const Cluster& cluster, const Collective& what, const LibraryCosts& library,
                       const Limits& limits, uint32_t hosts_max) {
  return with_input(cluster, what, library, limits, hosts_max, [&](const PlanInput& input) {
    FlowSet flows;
    Plan plan = plan_collective(input, flows);
    const auto times = run_fluid(flows, input.network.links());
    Evaluated found{.all = evaluate(plan, times)};
    plan.repeats = plan.least_s = 0;
    found.first_pieces = evaluate(plan, times);
    return found;
  });
}

// From 8 bytes to 16 GiB.
constexpr int kSmallest = 3;  // exponents of 2
constexpr int kLargest = 34;
// How many jumps of the time are in the table: later ones are small next to the whole time.
constexpr int kJumps = 8;

// Powers of two, and both sides of each jump of the time: it jumps after each multiple of the bytes
// that go in one round, or as one piece.
std::set<Bytes> sizes_of(const Cluster& cluster, const Collective& what,
                         const LibraryCosts& library, const Limits& limits) {
  const double at_once = with_input(cluster, what, library, limits, limits.hosts,
                                    [](const PlanInput& input) { return bytes_at_once(input); });
  std::set<Bytes> sizes;
  for (int i = kSmallest; i <= kLargest; ++i) sizes.insert(Bytes{1} << i);
  for (int i = 1; i <= kJumps; ++i) {
    const auto last = static_cast<Bytes>(i * at_once);
    if (last > *sizes.begin() && last < (Bytes{1} << kLargest)) sizes.insert({last, last + 1});
  }
  return sizes;
}

}  // namespace

uint32_t ranks_of(const Cluster& cluster, const Collective& collective) {
  uint32_t ranks = 0;
  for (const uint32_t host : collective.hosts) ranks += cluster.group_of(host).gpus;
  if (!collective.hosts.empty()) return ranks;
  for (const HostGroup& group : cluster.groups) ranks += group.hosts * group.gpus;
  return ranks;
}

bool possible(const Cluster& cluster, const Collective& what) {
  const bool nvls = what.algorithm == Algorithm::kNvls || what.algorithm == Algorithm::kNvlsTree;
  if (nvls && !std::ranges::all_of(cluster.groups, &HostGroup::nvls)) return false;
  // NCCL sends between pairs in LL up to NCCL_P2P_LL_THRESHOLD, and in Simple otherwise.
  constexpr Bytes kPairsInLl = Bytes{16} << 10;
  const uint32_t peers = what.operation == Operation::kAllToAll ? ranks_of(cluster, what) : 1;
  const bool pairs = what.algorithm == Algorithm::kPairwise && what.protocol != Protocol::kSimple;
  const bool small = what.protocol == Protocol::kLl && what.bytes / peers <= kPairsInLl;
  return supported(what.operation, what.algorithm) && (!pairs || small);
}

Prediction predict(const Cluster& cluster, const Collective& collective,
                   const LibraryCosts& library, const Limits& limits) {
  const Evaluated some = predict_some(cluster, collective, library, limits, limits.hosts);
  Prediction found = some.all;
  const uint32_t all = hosts_of(cluster, collective);
  if (collective.hosts.empty() && goes_in_pieces(collective) && all > limits.hosts) {
    // The hosts, or levels of a tree, that are not planned take the first pieces as long as those
    // from limits.hosts / 2 to limits.hosts.
    const uint32_t half = limits.hosts / 2;
    const Prediction& larger = some.first_pieces;
    const Prediction smaller =
        predict_some(cluster, collective, library, limits, half).first_pieces;
    const double more = collective.algorithm == Algorithm::kRing
                            ? static_cast<double>(all - limits.hosts) / half
                            : std::log2(static_cast<double>(all) / limits.hosts);
    for (size_t i = 0; i < kCauses; ++i) {
      found.terms[i] += more * (larger.terms[i] - smaller.terms[i]);
    }
    found.time_s += more * (larger.time_s - smaller.time_s);
  }
  found.bottleneck =
      static_cast<Cause>(std::ranges::max_element(found.terms) - found.terms.begin());
  if (found.time_s <= 0) return found;
  found.algorithm_rate = static_cast<double>(collective.bytes) / found.time_s;
  found.bus_rate =
      found.algorithm_rate * bus_factor(collective.operation, ranks_of(cluster, collective));
  return found;
}

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
    for (const Bytes bytes : sizes_of(cluster, what, library, limits)) {
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
