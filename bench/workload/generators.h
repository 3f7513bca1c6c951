// Workloads without steps: source, destination, bytes and start of each flow. The same arguments
// give the same flows. Pure.
//
// Expected of callers (workload_spec.cc checks): at least two hosts, all different, and `bytes` of
// at least 1, unless a function says more.
#pragma once

#include <cstdint>

#include "bench/workload/flow_graph.h"
#include "bench/workload/flow_sizes.h"
#include "bench/workload/workload.h"
#include "transport/base/result.h"

namespace pacecar {

// The 1st host sends to the 2nd, the 3rd to the 4th, and so on; an even number of hosts.
Workload pairs(Hosts hosts, Bytes bytes);

// Each of the first `receivers` hosts receives from `senders` of the following ones, of which each
// starts `stagger` after the one before. Needs receivers * (1 + senders) hosts.
Workload incast(Hosts hosts, uint32_t receivers, uint32_t senders, Bytes bytes, Duration stagger);

// Each host sends to one host and receives from one, both on other leaves. A host's leaf is host /
// hosts_per_leaf. Errors: kInvalidArgument when a leaf has more than half of the hosts.
Result<Workload> permutation(Hosts hosts, uint32_t hosts_per_leaf, Bytes bytes, uint64_t seed);

// Each host sends to all others, at most `parallel` flows at a time (0: all): when a flow is done,
// the next one starts.
Workload all_to_all(Hosts hosts, uint32_t parallel, Bytes bytes);

// Each host starts flows as a Poisson process within 0 .. `length`, to other hosts at random. They
// fill each host's link of `rate` to a share of `load` on average. Errors: kInvalidArgument for
// more flows than can be run.
Result<Workload> random_flows(Hosts hosts, const FlowSizes& sizes, double load, Rate rate,
                              Duration length, uint64_t seed);

}  // namespace pacecar
