#include "bench/workload/generators.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "transport/base/prng.h"

namespace pacecar {
Result<Workload> permutation(Hosts hosts, uint32_t hosts_per_leaf, Bytes bytes, uint64_t seed) {
  const size_t n = hosts.size();
  // Leaf by leaf, so that a host's partner at the distance of the largest leaf's size is on another
  // leaf.
  std::map<uint32_t, std::vector<uint32_t>> leaves;
  for (const uint32_t host : hosts) leaves[host / hosts_per_leaf].push_back(host);
  std::vector<uint32_t> from;
  size_t widest = 0;
  for (const auto& [leaf, members] : leaves) {
    from.insert(from.end(), members.begin(), members.end());
    widest = std::max(widest, members.size());
  }
  if (2 * widest > n) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a permutation that leaves the leaf needs another host for each of the "
                            "{} hosts of one leaf, but only {} are on others; set hosts_per_leaf "
                            "to 1 or let more hosts take part",
                            widest, n - widest));
  }
  std::vector<uint32_t> to(n);
  for (size_t i = 0; i < n; ++i) to[i] = from[(i + widest) % n];

  // Random exchanges that send no host to its own leaf.
  const auto may = [&](uint32_t a, uint32_t b) { return a / hosts_per_leaf != b / hosts_per_leaf; };
  Prng prng(seed);
  constexpr size_t kExchangesPerHost = 32;
  for (size_t i = 0; i < n * kExchangesPerHost; ++i) {
    const size_t a = prng.below(n);
    const size_t b = prng.below(n);
    if (may(from[a], to[b]) && may(from[b], to[a])) std::swap(to[a], to[b]);
  }

  FlowGraph graph("permutation");
  for (size_t i = 0; i < n; ++i) graph.add(from[i], to[i], bytes);
  return graph.take();
}

Workload all_to_all(Hosts hosts, uint32_t parallel, Bytes bytes) {
  const auto n = static_cast<uint32_t>(hosts.size());
  const uint32_t others = n - 1;
  const uint32_t at_once = parallel == 0 ? others : std::min(parallel, others);
  const uint32_t stride = others / at_once;
  // The distance of each next destination around the circle of hosts: first `at_once` of them
  // spread evenly, then their neighbours, at last those that remain.
  std::vector<uint32_t> steps;
  for (uint32_t i = 0; i < stride; ++i) {
    for (uint32_t j = 0; j < at_once; ++j) steps.push_back(1 + i + j * stride);
  }
  for (uint32_t step = at_once * stride + 1; step < n; ++step) steps.push_back(step);

  FlowGraph graph("all-to-all");
  for (uint32_t i = 0; i < n; ++i) {
    uint32_t waits = kNoTrigger;
    uint32_t fires = kNoTrigger;
    for (uint32_t k = 0; k < others; ++k) {
      if (k % at_once == 0) {  // the flows of a round start those of the next
        waits = fires;
        fires = k + at_once < others
                    ? graph.add_trigger({.kind = WorkloadTrigger::Kind::kMultiShot})
                    : kNoTrigger;
      }
      WorkloadFlow& flow = graph.flow(graph.add(hosts[i], hosts[(i + steps[k]) % n], bytes));
      flow.trigger = waits;
      if (fires != kNoTrigger) flow.on_sent = {fires};
    }
  }
  return graph.take();
}

}  // namespace pacecar
