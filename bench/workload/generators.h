// Workloads without steps: source, destination, bytes and start of each flow. The same arguments
// give the same flows. Pure.
//
// Expected of callers (workload_spec.cc checks): at least two hosts, all different, and `bytes` of
// at least 1, unless a function says more.
#pragma once

#include <cstdint>

#include "bench/workload/flow_graph.h"
#include "bench/workload/workload.h"
#include "transport/base/result.h"

namespace pacecar {

// Each host sends to one host and receives from one, both on other leaves. A host's leaf is host /
// hosts_per_leaf. Errors: kInvalidArgument when a leaf has more than half of the hosts.
Result<Workload> permutation(Hosts hosts, uint32_t hosts_per_leaf, Bytes bytes, uint64_t seed);

// Each host sends to all others, at most `parallel` flows at a time (0: all): when a flow is done,
// the next one starts.
Workload all_to_all(Hosts hosts, uint32_t parallel, Bytes bytes);

}  // namespace pacecar
