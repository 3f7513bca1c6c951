// A collective as flows that wait for one another, over the links of a Network. Where steps or
// pieces repeat, only enough of them are planned to show the period. Where hosts are equal, only
// some are planned; they represent the others. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/collective.h"
#include "net_plugin/predict/fluid.h"
#include "net_plugin/predict/network.h"

namespace pacecar::predict {

// How much is planned at most. Less is faster, and less exact where hosts differ.
struct Limits {
  uint32_t ranks = 64;         // in a ring; more are represented by hosts of two leaves
  uint32_t hosts = 512;        // in a tree, a chain or an all-to-all
  uint32_t spread_hosts = 64;  // in PAT; more are represented by the hosts of a leaf
  uint32_t pieces = 16;        // of a buffer that goes in pieces
  uint32_t flows = 100'000;    // of steps that repeat
};

inline constexpr uint32_t kNoFlow = ~0U;

struct FlowRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};

struct Plan {
  FlowRange flows;
  // From the end of `early` to the end of `late` is one period; `repeats` more follow.
  FlowRange early;
  FlowRange late;
  double repeats = 0;
  double least_s = 0;  // a lower bound: of the busiest link, or of links without flows
  Cause least_cause = Cause::kNvlink;
  double extra_s = 0;  // before and after all flows
  // On one channel, from the first rank to its first peer. Only for rings, trees and chains.
  Messages messages;

  void at_least(double seconds, Cause cause) {
    if (seconds <= least_s) return;
    least_s = seconds;
    least_cause = cause;
  }
};

struct PlanInput {
  const Network& network;
  const Collective& collective;
  const LibraryCosts& overheads;
  const Limits& limits;
  std::span<const uint32_t> hosts;  // the planned ones, in the order of their ranks
  uint32_t all_hosts = 0;           // how many take part

  ProtocolCosts costs() const {
    ProtocolCosts costs = overheads.of(collective.protocol);
    if (collective.algorithm == Algorithm::kRing && !goes_in_pieces(collective)) {
      costs.chunk *= costs.ring_chunks;
      costs.slots = std::max(costs.slots / costs.ring_chunks, 1U);
    }
    return costs;
  }
  // The group of the first host; all hosts have the same number of GPUs.
  const HostGroup& group() const { return network.cluster().group_of(hosts.front()); }
};

// The bytes of the buffer that go in one round of a ring, or as one piece; 0: all.
double bytes_at_once(const PlanInput& input);

// Adds the flows to `set`, and names them in the plan. The collective must be `supported`.
Plan plan_collective(const PlanInput& input, FlowSet& set);

// By algorithm.
Plan plan_ring(const PlanInput& input, FlowSet& set);  // and kNvls, send/receive
Plan plan_hierarchical(const PlanInput& input, FlowSet& set);
Plan plan_pieces(const PlanInput& input, FlowSet& set);  // trees, and chains
Plan plan_pat(const PlanInput& input, FlowSet& set);
Plan plan_all_to_all(const PlanInput& input, FlowSet& set);

// One channel is planned and stands for all `count`; the loads are the sums over all channels.
struct Channels {
  uint32_t count = 1;
  uint32_t nic = 0;  // the slowest one, as all carry equal parts
  Loads loads;
};
Channels channels_of(const PlanInput& input);
bool has_two_trees(const PlanInput& input);  // Two trees, of which each carries half of the buffer.
double rounds_of(const PlanInput& input);    // The rounds of a ring, or the pieces.
// The collective has `steps` equal steps of `flows` flows. The set has the first `planned` steps,
// from flow `first` on. The second half of the planned steps is the period.
void repeat(Plan& plan, uint32_t first, uint32_t flows, uint32_t planned, double steps);

}  // namespace pacecar::predict
