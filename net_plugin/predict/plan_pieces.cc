// A buffer that goes in pieces up a tree, down it, or both; or along a chain.
#include <algorithm>
#include <utility>

#include "net_plugin/predict/plan.h"

namespace pacecar::predict {
namespace {

// The parent of each node 0 .. n-1 of a tree; kNoFlow for the root.
using Parents = std::vector<uint32_t>;

template <typename ParentOf>
Parents tree(uint32_t n, const ParentOf& parent_of) {
  Parents parents(n, kNoFlow);
  for (uint32_t i = 1; i < n; ++i) parents[i] = parent_of(i);
  return parents;
}

// Joins neighbours first: the lowest set bit of a node is its height.
Parents near_tree(uint32_t n) {
  return tree(n, [n](uint32_t i) {
    const uint32_t low = i & (~i + 1);
    const uint32_t up = (i ^ low) | (low << 1);
    return up < n ? up : i ^ low;
  });
}

// The same tree with the nodes renumbered. For even n, a node that is inner in one tree is a leaf
// in the other; for odd n, all inner nodes of a near_tree but one are.
Parents renumbered(const Parents& parents) {
  const auto n = static_cast<uint32_t>(parents.size());
  const auto place = [n](uint32_t i) { return n % 2 == 0 ? n - 1 - i : (i + 1) % n; };
  Parents other(n, kNoFlow);
  for (uint32_t i = 0; i < n; ++i) {
    if (parents[i] != kNoFlow) other[place(i)] = place(parents[i]);
  }
  return other;
}

// One direction of an edge of the tree, for one piece.
struct Edge {
  Flow flow;
  std::vector<uint32_t> inputs;  // edges that must deliver the piece before
  uint32_t before = kNoFlow;     // an edge of the same sender that goes first
};

// Adds the edges of one tree, up then down. `flow_between`: from node to node. A child's number may
// be below or above the parent's number, so edges are added in order of depth.
template <typename FlowBetween>
void add_tree(const Parents& parents, bool up, bool down, const FlowBetween& flow_between,
              std::vector<Edge>& edges) {
  const auto n = static_cast<uint32_t>(parents.size());
  std::vector<std::vector<uint32_t>> children(n);
  uint32_t root = 0;
  for (uint32_t i = 0; i < n; ++i) {
    if (parents[i] == kNoFlow) {
      root = i;
    } else {
      children[parents[i]].push_back(i);
    }
  }
  std::vector<uint32_t> order{root};  // parents first
  for (size_t i = 0; i < order.size(); ++i) {
    order.insert(order.end(), children[order[i]].begin(), children[order[i]].end());
  }
  std::vector<std::vector<uint32_t>> inputs(n);
  if (up) {
    for (size_t i = order.size(); i-- > 1;) {
      const uint32_t node = order[i];
      inputs[parents[node]].push_back(static_cast<uint32_t>(edges.size()));
      edges.push_back({flow_between(node, parents[node]), std::exchange(inputs[node], {})});
    }
  }
  if (!down) return;
  for (const uint32_t node : order) {
    uint32_t before = kNoFlow;
    for (const uint32_t child : children[node]) {
      inputs[child] = {static_cast<uint32_t>(edges.size())};
      edges.push_back({flow_between(node, child), inputs[node], before});
      before = inputs[child][0];
    }
  }
}

void add_pieces(FlowSet& set, const std::vector<Edge>& edges, uint32_t pieces, uint32_t slots,
                bool in_turn) {
  const uint32_t first = set.size();
  const auto per_piece = static_cast<uint32_t>(edges.size());
  for (uint32_t piece = 0; piece < pieces; ++piece) {
    for (uint32_t i = 0; i < per_piece; ++i) {
      const uint32_t flow = set.add(edges[i].flow);
      for (const uint32_t from : edges[i].inputs) {
        set.after_received(flow, first + piece * per_piece + from);
      }
      if (in_turn && edges[i].before != kNoFlow) {
        set.after_drained(flow, first + piece * per_piece + edges[i].before);
      }
      if (piece > 0 && slots > 1) set.after_drained(flow, flow - per_piece);
      if (piece >= slots) set.after_sent(flow, flow - slots * per_piece);
    }
  }
}

// A lower bound: the time that the busiest link needs for all pieces. The first pieces do not show
// it, as they are sent while the tree fills.
void bound_by_links(const std::vector<Edge>& edges, double pieces, std::span<const Link> links,
                    Plan& plan) {
  std::vector<double> bytes(links.size());  // of one piece
  for (const Edge& edge : edges) {
    for (const Route::Use& use : edge.flow.route.all()) {
      bytes[use.link] += edge.flow.bytes * use.load;
    }
  }
  for (size_t i = 0; i < links.size(); ++i) {
    plan.at_least(pieces * bytes[i] / links[i].rate, links[i].cause);
  }
}

}  // namespace

Plan plan_pieces(const PlanInput& input, FlowSet& set) {
  const Collective& what = input.collective;
  const ProtocolCosts& costs = input.costs();
  const HostGroup& group = input.group();
  const Channels channels = channels_of(input);
  const bool along_chain = what.algorithm == Algorithm::kRing;
  const bool two_trees = has_two_trees(input);
  const double bytes = static_cast<double>(what.bytes) / channels.count / (two_trees ? 2 : 1);
  const double pieces = what.pieces != 0 ? what.pieces : rounds_of(input);
  const auto planned = static_cast<uint32_t>(std::min<double>(pieces, input.limits.pieces));
  const bool up = what.operation == Operation::kAllReduce || what.operation == Operation::kReduce;
  const bool down = what.operation != Operation::kReduce;

  Plan plan;
  plan.messages = {.count = pieces, .bytes = bytes / pieces / costs.payload};
  const auto places = static_cast<uint32_t>(input.hosts.size());
  const uint32_t gpus = along_chain ? group.gpus : 1;
  const auto rank = [&](uint32_t node) { return Rank{input.hosts[node / gpus], node % gpus}; };
  const auto flow_between = [&](uint32_t from, uint32_t to) {
    return input.network.flow(rank(from), rank(to), channels.nic, bytes / pieces, costs,
                              channels.loads);
  };
  std::vector<Edge> edges;
  if (along_chain) {
    add_tree(tree(places * gpus, [](uint32_t i) { return i - 1; }), up, down, flow_between, edges);
  } else {
    const Parents parents = input.overheads.near_trees
                                ? near_tree(places)
                                : tree(places, [](uint32_t i) { return (i - 1) / 2; });
    add_tree(parents, up, down, flow_between, edges);
    if (two_trees) add_tree(renumbered(parents), up, down, flow_between, edges);
    if (what.algorithm == Algorithm::kTree && group.gpus > 1) {
      // The GPUs of a host that reach the network through other GPUs.
      const int directions = up && down ? 2 : 1;
      const double hop =
          group.nvlink_latency_s + costs.local_step_s + bytes / pieces / group.nvlink_rate;
      plan.extra_s = directions * (group.gpus - 1) * hop;
      plan.least_s =
          directions * static_cast<double>(what.bytes) / costs.payload / group.nvlink_rate;
    }
  }
  bound_by_links(edges, pieces, input.network.links(), plan);
  const uint32_t first = set.size();
  // Brief messages leave a NIC one after another; others share it.
  add_pieces(set, edges, planned, costs.slots, input.network.is_brief(bytes / pieces));
  repeat(plan, first, static_cast<uint32_t>(edges.size()), planned, pieces);
  return plan;
}

}  // namespace pacecar::predict
