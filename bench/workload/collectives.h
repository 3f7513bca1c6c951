// Collective operations as flows and triggers. A step starts when the data that it forwards has
// been received and the host's previous send is done, as in collective libraries with a buffer of
// one slot. Reductions take no time. Pure.
//
// `bytes` is the buffer of one host; shares differ by at most one byte. Expected of callers
// (workload_spec.cc checks): at least two different hosts, at least one byte per share or piece.
#pragma once

#include <cstdint>

#include "bench/workload/flow_graph.h"
#include "bench/workload/workload.h"

namespace pacecar {

// n hosts, n - 1 steps: host i ends with the sum of share i + 1. Each host sends and receives
// bytes * (n - 1) / n.
Workload reduce_scatter(Hosts hosts, Bytes bytes);
// n - 1 steps in which every share passes around the ring; as many bytes.
Workload all_gather(Hosts hosts, Bytes bytes);
// Both, one after the other: 2 (n - 1) steps.
Workload ring_all_reduce(Hosts hosts, Bytes bytes);

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
