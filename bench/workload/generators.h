// The kinds of workload as flows and triggers. The same arguments give the same flows. A step of a
// collective starts when the data that it forwards has been received and the host's previous send
// is done, as in collective libraries with a buffer of one slot. Reductions take no time. A
// collective's `bytes` is the buffer of one host; shares differ by at most one byte.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "bench/workload/workload.h"
#include "bench/workload/workload_spec.h"
#include "transport/base/invalid.h"

namespace pacecar {

template <typename... Args>
tl::unexpected<Error> unfit(const WorkloadSpec& spec, fmt::format_string<Args...> text,
                            Args&&... args) {
  return invalid("workload {}: {}", spec.kind, fmt::format(text, std::forward<Args>(args)...));
}

// `hosts`: at least two, all different. Errors: kInvalidArgument for values that do not fit each
// other or the hosts.
using Generator = Result<Workload>(const WorkloadSpec& spec, Hosts hosts, uint64_t seed);

Generator file_flows;    // of a .cm file; further errors: as for reading it
Generator pairs;         // the 1st host sends to the 2nd, the 3rd to the 4th, ...
Generator incast;        // `senders` to each of the first `receivers` hosts
Generator random_flows;  // Poisson arrivals, sizes from a distribution
// Each host sends to one host and receives from one, both on other leaves. A host's leaf is host /
// hosts_per_leaf.
Generator permutation;
// Each host sends to all others, at most `parallel` flows at a time (0: all): when a flow is done,
// the next one starts.
Generator all_to_all;
// In each step every host passes a share of `bytes` / n on around the ring: n - 1 steps for a
// reduce-scatter or an all-gather, twice as many for an all-reduce.
Generator ring_half;
Generator ring_all_reduce;
// Servers of `hosts_per_server` consecutive hosts: reduce-scatter within each server, ring
// all-reduce of each share between the hosts of the same place in all servers, all-gather within
// each server.
Generator hierarchical_all_reduce;
// Binary tree (host i's children are 2i + 1 and 2i + 2): sums go up to the first host, results come
// down again, piece by piece.
Generator tree_all_reduce;
Generator tree_broadcast;
Generator ring_broadcast;  // from the first host along the others
// Pipeline-parallel training, one stage per host, by the one-forward-one-backward schedule:
// activations of `bytes` go to the next stage, gradients of as many to the previous one. `compute`
// is a stage's time for one microbatch, forward or backward; it begins after the stage's last send.
Generator pipeline_parallel;

}  // namespace pacecar
