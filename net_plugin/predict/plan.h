// A collective as flows that wait for one another. Steps and pieces that repeat are planned as far
// as is needed to see how they go on; hosts that are alike stand for those that are not looked at.
// Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "net_plugin/predict/collective.h"
#include "net_plugin/predict/fluid.h"
#include "net_plugin/predict/library_costs.h"
#include "net_plugin/predict/network.h"

namespace pacecar::predict {

// How much is planned at most. Less is faster, and less exact where hosts differ.
struct Limits {
  uint32_t ranks = 64;         // of hosts that are alike and in their order, in a ring
  uint32_t hosts = 512;        // likewise, in a tree, a chain or an all-to-all
  uint32_t spread_hosts = 64;  // in PAT; of more, those of a leaf
  uint32_t pieces = 16;        // of a buffer that goes piece by piece
  uint32_t flows = 100'000;    // of steps that repeat
};

inline constexpr uint32_t kNoFlow = ~0U;

struct FlowRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};

struct Plan {
  FlowRange flows;
  // What repeats: from the end of `early` to that of `late`, and then `repeats` times more.
  FlowRange early;
  FlowRange late;
  double repeats = 0;
  double least_s = 0;  // by links that the flows leave out, or by all that a link has to carry
  Cause least_cause = Cause::kNvlink;
  double extra_s = 0;  // before and after the flows
};

struct PlanInput {
  const Network& network;
  const Collective& collective;
  const LibraryCosts& overheads;
  const Limits& limits;
  std::span<const uint32_t> hosts;  // that are looked at, in the order of their ranks
  uint32_t all_hosts = 0;           // that take part
};

// Bytes of the buffer that go in one round around a ring, or as one piece. With more there is one
// round or piece more, and the time jumps. 0: all go at once.
double bytes_at_once(const PlanInput& input);

// Puts the flows into `set`. The collective is `supported`.
Plan plan_collective(const PlanInput& input, FlowSet& set);

// The parts of it.
Plan plan_ring(const PlanInput& input, FlowSet& set);  // and kNvls, send/receive
Plan plan_hierarchical(const PlanInput& input, FlowSet& set);
Plan plan_pieces(const PlanInput& input, FlowSet& set);  // trees, and chains
Plan plan_pat(const PlanInput& input, FlowSet& set);
Plan plan_all_to_all(const PlanInput& input, FlowSet& set);

// Channels, and what the one that is planned stands for.
struct Channels {
  uint32_t count = 1;
  uint32_t nic = 0;  // the slowest: all carry the same
  Loads loads;
};
Channels channels_of(const PlanInput& input);
// Each of them carries half of a buffer.
bool has_two_trees(const PlanInput& input);
// Rounds around a ring, or pieces.
double rounds_of(const PlanInput& input);

}  // namespace pacecar::predict
