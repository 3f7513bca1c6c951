// Permutation, all-to-all and collective operations as flows and triggers. The same arguments give
// the same flows. Pure.
//
// A step of a collective starts when the data that it forwards has been received and the host's
// previous send is done, as in collective libraries with a buffer of one slot. Reductions take no
// time. `bytes` is the buffer of one host; shares differ by at most one byte.
//
// Expected of callers (workload_spec.cc checks): at least two hosts, all different, and at least
// one byte per flow, share or piece.
#pragma once

#include <cstdint>

#include "bench/workload/workload.h"
#include "transport/base/result.h"

namespace pacecar {

// Each host sends to one host and receives from one, both on other leaves. A host's leaf is host /
// hosts_per_leaf. Errors: kInvalidArgument when a leaf has more than half of the hosts.
Result<Workload> permutation(Hosts hosts, uint32_t hosts_per_leaf, Bytes bytes, uint64_t seed);

// Each host sends to all others, at most `parallel` flows at a time (0: all): when a flow is done,
// the next one starts.
Workload all_to_all(Hosts hosts, uint32_t parallel, Bytes bytes);

// `rounds` times n - 1 steps, in each of which every host passes a share of `bytes` / n on around
// the ring: 1 for a reduce-scatter or an all-gather, 2 for an all-reduce.
Workload ring_collective(Hosts hosts, Bytes bytes, uint32_t rounds);

// Servers of `per_server` consecutive hosts: reduce-scatter within each server, ring all-reduce of
// each share between the hosts of the same place in all servers, all-gather within each server.
Workload hierarchical_all_reduce(Hosts hosts, uint32_t per_server, Bytes bytes);

// Binary tree (host i's children are 2i + 1 and 2i + 2): sums go up to the first host, results come
// down again, piece by piece.
Workload tree_all_reduce(Hosts hosts, Bytes bytes, uint32_t pieces);
Workload tree_broadcast(Hosts hosts, Bytes bytes, uint32_t pieces);
// From the first host along the others.
Workload ring_broadcast(Hosts hosts, Bytes bytes, uint32_t pieces);

// Pipeline-parallel training, one stage per host, by the one-forward-one-backward schedule:
// activations of `bytes` go to the next stage, gradients of as many to the previous one. `compute`
// is a stage's time for one microbatch, forward or backward; it begins when the stage's last send
// is done.
Workload pipeline_parallel(Hosts hosts, Bytes bytes, uint32_t microbatches, Duration compute);

}  // namespace pacecar
