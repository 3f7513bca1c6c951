// Workloads against theory: bytes per host, the spread of data, and the start of every flow.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "bench/workload/cm_file.h"
#include "bench/workload/workload.h"
#include "bench/workload/workload_spec.h"
#include "tests/support/workload_player.h"
#include "tests/support/workload_text.h"

namespace pacecar::workload_property {
namespace {

struct Traffic {
  std::vector<Bytes> sent;
  std::vector<Bytes> received;
};

Traffic traffic_of(const Workload& workload) {
  Traffic traffic{std::vector<Bytes>(workload.hosts, 0), std::vector<Bytes>(workload.hosts, 0)};
  for (const WorkloadFlow& flow : workload.flows) {
    traffic.sent[flow.source] += flow.bytes;
    traffic.received[flow.destination] += flow.bytes;
  }
  return traffic;
}

// `count` distinct hosts of `network` hosts, in random order.
std::vector<uint32_t> draw_hosts(uint32_t network, uint32_t count) {
  std::vector<uint32_t> all(network);
  std::iota(all.begin(), all.end(), 0U);
  Prng prng(*rc::gen::arbitrary<uint64_t>());
  for (size_t i = network - 1; i > 0; --i) std::swap(all[i], all[prng.below(i + 1)]);
  all.resize(count);
  return all;
}

// Checks that every flow starts and ends, and that each of `hosts` ends with the data of each of
// `sources`, in a random order of events.
void check_spread(const Workload& workload, const std::vector<uint32_t>& hosts,
                  const std::vector<uint32_t>& sources) {
  RC_ASSERT(!never_starting_flow(workload).has_value());
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  RC_ASSERT(WorkloadPlayer(workload, seed).play() == workload.flows.size());
  const auto known = spread_data(workload, seed);
  for (const uint32_t host : hosts) {
    for (const uint32_t source : sources) RC_ASSERT(known[host].contains(source));
  }
}

class Draw {
 public:
  uint32_t network = *rc::gen::inRange(2U, 12U);
  std::vector<uint32_t> hosts = draw_hosts(network, *rc::gen::inRange(2U, network + 1));
  uint32_t n = static_cast<uint32_t>(hosts.size());
  Bytes bytes = *rc::gen::inRange<Bytes>(n, 1000);

  // A workload of these hosts and bytes, unless `spec` names other bytes.
  Workload make(WorkloadSpec spec) const {
    if (spec.bytes == WorkloadSpec().bytes) spec.bytes = bytes;
    spec.hosts = hosts;
    return make_workload(spec, network, 1).value();
  }
};

RC_GTEST_PROP(Collectives, RingsMoveTheExpectedBytes, ()) {
  const Draw draw;
  const Bytes even = draw.bytes * draw.n;  // divides evenly
  const auto scatter = draw.make({.kind = "reduce_scatter", .bytes = even});
  const auto both = draw.make({.kind = "ring_all_reduce", .bytes = even});
  for (const uint32_t host : draw.hosts) {
    const Bytes once = draw.bytes * (draw.n - 1);
    RC_ASSERT(traffic_of(scatter).sent[host] == once);
    RC_ASSERT(traffic_of(scatter).received[host] == once);
    RC_ASSERT(traffic_of(both).sent[host] == 2 * once);
    RC_ASSERT(traffic_of(both).received[host] == 2 * once);
  }
  check_spread(scatter, draw.hosts, draw.hosts);
  check_spread(both, draw.hosts, draw.hosts);
}

RC_GTEST_PROP(Collectives, UnevenSharesAddUp, ()) {
  const Draw draw;
  const auto both = draw.make({.kind = "ring_all_reduce"});
  const Traffic traffic = traffic_of(both);
  Bytes all = 0;
  for (const uint32_t host : draw.hosts) {
    all += traffic.sent[host];
    // All but one share, twice; shares differ by a byte.
    RC_ASSERT(traffic.sent[host] >= 2 * (draw.bytes - draw.bytes / draw.n - 1));
    RC_ASSERT(traffic.sent[host] <= 2 * (draw.bytes - draw.bytes / draw.n));
  }
  RC_ASSERT(all == 2 * (draw.n - 1) * draw.bytes);
}

RC_GTEST_PROP(Collectives, HierarchicalAllReduceMovesTheExpectedBytes, ()) {
  const auto per_server = *rc::gen::inRange(2U, 5U);
  const auto servers = *rc::gen::inRange(2U, 5U);
  const uint32_t n = per_server * servers;
  const auto hosts = draw_hosts(n, n);
  const Bytes share = *rc::gen::inRange<Bytes>(1, 1000);
  const Bytes bytes = share * n;
  const auto workload = make_workload({.kind = "hierarchical_all_reduce",
                                       .hosts = hosts,
                                       .bytes = bytes,
                                       .hosts_per_server = per_server},
                                      n, 1)
                            .value();

  std::map<uint32_t, uint32_t> server_of;
  for (uint32_t i = 0; i < n; ++i) server_of[hosts[i]] = i / per_server;
  std::vector<Bytes> inside(n, 0);
  std::vector<Bytes> between(n, 0);
  for (const WorkloadFlow& flow : workload.flows) {
    const bool leaves = server_of[flow.source] != server_of[flow.destination];
    (leaves ? between : inside)[flow.source] += flow.bytes;
  }
  for (uint32_t host = 0; host < n; ++host) {
    RC_ASSERT(inside[host] == 2 * (per_server - 1) * (bytes / per_server));
    RC_ASSERT(between[host] == 2 * (servers - 1) * (bytes / n));
  }
  check_spread(workload, hosts, hosts);
}

RC_GTEST_PROP(Collectives, TreesMoveTheBufferOncePerEdge, ()) {
  const Draw draw;
  const auto pieces = *rc::gen::inRange(1U, static_cast<uint32_t>(std::min<Bytes>(5, draw.bytes)));
  const auto reduce = draw.make({.kind = "tree_all_reduce", .pieces = pieces});
  const auto broadcast = draw.make({.kind = "tree_broadcast", .pieces = pieces});
  const auto chain = draw.make({.kind = "ring_broadcast", .pieces = pieces});
  RC_ASSERT(reduce.flows.size() == 2 * (draw.n - 1) * pieces);
  for (uint32_t i = 0; i < draw.n; ++i) {
    const uint32_t host = draw.hosts[i];
    const Bytes children = (2 * i + 1 < draw.n) + (2 * i + 2 < draw.n);
    const Bytes parents = i > 0;
    RC_ASSERT(traffic_of(reduce).sent[host] == draw.bytes * (children + parents));
    RC_ASSERT(traffic_of(reduce).received[host] == draw.bytes * (children + parents));
    RC_ASSERT(traffic_of(broadcast).sent[host] == draw.bytes * children);
    RC_ASSERT(traffic_of(broadcast).received[host] == draw.bytes * parents);
    RC_ASSERT(traffic_of(chain).sent[host] == draw.bytes * (i + 1 < draw.n));
    RC_ASSERT(traffic_of(chain).received[host] == draw.bytes * parents);
  }
  check_spread(reduce, draw.hosts, draw.hosts);
  check_spread(broadcast, draw.hosts, {draw.hosts[0]});
  check_spread(chain, draw.hosts, {draw.hosts[0]});
}

RC_GTEST_PROP(Collectives, PipelineLimitsMicrobatchesInFlight, ()) {
  const Draw draw;
  const auto batches = *rc::gen::inRange(1U, 10U);
  const auto workload =
      draw.make({.kind = "pipeline", .microbatches = batches, .compute = Duration::from_us(3)});
  RC_ASSERT(workload.flows.size() == 2 * (draw.n - 1) * batches);
  RC_ASSERT(!never_starting_flow(workload).has_value());

  std::map<uint32_t, int> stage_of;
  for (uint32_t i = 0; i < draw.n; ++i) stage_of[draw.hosts[i]] = static_cast<int>(i);
  std::vector<int> in_work(draw.n, 0);  // activations sent whose gradients are not back
  std::vector<int> sending(draw.n, 0);
  WorkloadPlayer player(workload, *rc::gen::arbitrary<uint64_t>());
  player.on_start = [&](size_t i) {
    const int from = stage_of[workload.flows[i].source];
    RC_ASSERT(++sending[static_cast<size_t>(from)] == 1);
    if (stage_of[workload.flows[i].destination] < from) return;
    RC_ASSERT(++in_work[static_cast<size_t>(from)] <= static_cast<int>(draw.n) - from);
  };
  player.on_received = [&](size_t i) {
    const int to = stage_of[workload.flows[i].destination];
    if (stage_of[workload.flows[i].source] > to) --in_work[static_cast<size_t>(to)];
  };
  player.on_sent = [&](size_t i) {
    --sending[static_cast<size_t>(stage_of[workload.flows[i].source])];
  };
  RC_ASSERT(player.play() == workload.flows.size());
}

RC_GTEST_PROP(Generators, AllToAllCoversAllPairsOnce, ()) {
  const Draw draw;
  const auto parallel = *rc::gen::inRange(0U, draw.n + 2);
  const auto workload = draw.make({.kind = "all_to_all", .parallel = parallel});
  std::set<std::pair<uint32_t, uint32_t>> pairs_seen;
  for (const WorkloadFlow& flow : workload.flows) {
    RC_ASSERT(flow.source != flow.destination);
    RC_ASSERT(pairs_seen.emplace(flow.source, flow.destination).second);
  }
  RC_ASSERT(pairs_seen.size() == draw.n * (draw.n - 1));
  RC_ASSERT(busiest_host_bytes(workload) == (draw.n - 1) * draw.bytes);

  RC_ASSERT(!never_starting_flow(workload).has_value());
  std::vector<uint32_t> sending(draw.network, 0);
  const uint32_t most = parallel == 0 ? draw.n : parallel;
  WorkloadPlayer player(workload, *rc::gen::arbitrary<uint64_t>());
  player.on_start = [&](size_t i) { RC_ASSERT(++sending[workload.flows[i].source] <= most); };
  player.on_sent = [&](size_t i) { --sending[workload.flows[i].source]; };
  RC_ASSERT(player.play() == workload.flows.size());
}

RC_GTEST_PROP(Generators, PermutationLeavesTheLeaf, (uint64_t seed)) {
  const auto per_leaf = *rc::gen::inRange(1U, 5U);
  const auto leaves = *rc::gen::inRange(2U, 6U);
  const uint32_t n = per_leaf * leaves;
  const auto hosts = draw_hosts(n, n);
  const auto workload = make_workload(
      {.kind = "permutation", .hosts = hosts, .bytes = 1000, .hosts_per_leaf = per_leaf}, n, seed);
  RC_ASSERT(workload.has_value());
  RC_ASSERT(workload->flows.size() == n);
  std::set<uint32_t> sources;
  std::set<uint32_t> destinations;
  for (const WorkloadFlow& flow : workload->flows) {
    RC_ASSERT(flow.source / per_leaf != flow.destination / per_leaf);
    sources.insert(flow.source);
    destinations.insert(flow.destination);
  }
  RC_ASSERT(sources.size() == n);
  RC_ASSERT(destinations.size() == n);
}

RC_GTEST_PROP(CmFile, WrittenWorkloadReadsBack, ()) {
  const Draw draw;
  Workload workload = *rc::gen::element(
      draw.make({.kind = "tree_all_reduce", .pieces = 2}),
      draw.make({.kind = "all_to_all", .parallel = 2}),
      draw.make({.kind = "pipeline", .microbatches = 3, .compute = Duration::from_ns(1503)}));
  const auto read = parse_cm(write_cm(workload), "test.cm");
  RC_ASSERT(read.has_value());
  RC_ASSERT(read->hosts == workload.hosts);
  RC_ASSERT(read->flows.size() == workload.flows.size());
  for (size_t i = 0; i < read->flows.size(); ++i) {
    const WorkloadFlow& a = workload.flows[i];
    const WorkloadFlow& b = read->flows[i];
    RC_ASSERT(b.id == i + 1);
    RC_ASSERT(a.source == b.source);
    RC_ASSERT(a.destination == b.destination);
    RC_ASSERT(a.bytes == b.bytes);
    RC_ASSERT(a.start == b.start);
    RC_ASSERT(a.trigger == b.trigger);
    RC_ASSERT(a.on_sent == b.on_sent);
    RC_ASSERT(a.on_received == b.on_received);
  }
  RC_ASSERT(read->triggers.size() == workload.triggers.size());
  for (size_t i = 0; i < read->triggers.size(); ++i) {
    RC_ASSERT(read->triggers[i].kind == workload.triggers[i].kind);
    RC_ASSERT(read->triggers[i].count == workload.triggers[i].count);
  }
}

}  // namespace
}  // namespace pacecar::workload_property
