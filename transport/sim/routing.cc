#include "transport/sim/routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>

#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

constexpr uint32_t kFar = std::numeric_limits<uint32_t>::max();

struct Edge {
  NodeId neighbour;
  LinkId link;

  auto operator<=>(const Edge&) const = default;
};

struct LinksHash {
  size_t operator()(const std::vector<LinkId>& links) const {
    uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
    for (const LinkId link : links) hash = (hash ^ link) * 0x100000001b3U;
    return hash;
  }
};

std::string name_of(const Topology& topology, NodeId node) {
  if (node < topology.node_names.size()) return topology.node_names[node];
  const bool is_host = node < topology.hosts;
  return fmt::format("{} {}", is_host ? "host" : "switch", is_host ? node : node - topology.hosts);
}

Result<void> check_ends(const Topology& topology) {
  for (size_t i = 0; i < topology.cables.size(); ++i) {
    const Cable& cable = topology.cables[i];
    if (cable.a < topology.nodes() && cable.b < topology.nodes() && cable.a != cable.b) continue;
    return invalid(
        "cable {} of topology {} joins nodes {} and {}; give it two different nodes below {}", i,
        topology.name, cable.a, cable.b, topology.nodes());
  }
  return {};
}

}  // namespace

// Searches once per group of hosts, from their switches outwards.
class RoutingBuilder {
 public:
  RoutingBuilder(const Topology& topology, const std::vector<bool>& usable)
      : topology_(topology), edges_(topology.nodes()), steps_(topology.nodes()) {
    for (uint32_t i = 0; i < topology.cables.size(); ++i) {
      if (!usable[i]) continue;
      const Cable& cable = topology.cables[i];
      edges_[cable.a].push_back({cable.b, 2 * i});
      edges_[cable.b].push_back({cable.a, 2 * i + 1});
    }
    for (auto& edges : edges_) std::ranges::sort(edges);
  }

  Routing build() {
    add_hosts();
    for (NodeId node = 0; node < topology_.nodes(); ++node) {
      routing_.rows_.push_back(has_choice(node) ? routing_.row_count_++ : Routing::kOnlyWay);
    }
    routing_.table_.reserve(groups_.size() * routing_.row_count_);
    routing_.set_begin_.push_back(0);
    for (uint32_t group = 0; group < groups_.size(); ++group) {
      measure(edges_[groups_[group]]);
      check_reached(group);
      for (NodeId node = 0; node < topology_.nodes(); ++node) {
        if (routing_.rows_[node] != Routing::kOnlyWay) routing_.table_.push_back(next_set(node));
      }
    }
    return std::move(routing_);
  }
  // After build(): which host cannot reach which, as one sentence; empty: all can.
  const std::string& error() const { return error_; }

 private:
  bool is_host(NodeId node) const { return node < topology_.hosts; }
  bool has_choice(NodeId node) const {
    const auto& edges = edges_[node];
    return !is_host(node) || (!edges.empty() && edges.front().neighbour != edges.back().neighbour);
  }

  void add_hosts() {
    std::map<std::vector<NodeId>, uint32_t> groups;
    for (NodeId host = 0; host < topology_.hosts; ++host) {
      if (edges_[host].empty() && error_.empty()) {
        error_ = fmt::format("{} of topology {} has no cable; give it one, or leave it out",
                             name_of(topology_, host), topology_.name);
      }
      const auto begin = static_cast<uint32_t>(routing_.neighbours_.size());
      for (const Edge& edge : edges_[host]) {
        routing_.neighbours_.push_back(edge.neighbour);
        routing_.leaving_.push_back(edge.link);
        routing_.arriving_.push_back(edge.link ^ 1);
      }
      const auto end = static_cast<uint32_t>(routing_.neighbours_.size());
      std::vector<NodeId> neighbours(routing_.neighbours_.begin() + begin,
                                     routing_.neighbours_.end());
      neighbours.erase(std::unique(neighbours.begin(), neighbours.end()), neighbours.end());
      const auto [group, is_new] =
          groups.try_emplace(std::move(neighbours), static_cast<uint32_t>(groups_.size()));
      if (is_new) groups_.push_back(host);
      routing_.ends_.push_back({begin, end, group->second});
    }
  }

  // Sets steps_: how many cables each node is away from a host with these edges out.
  void measure(const std::vector<Edge>& edges) {
    steps_.assign(topology_.nodes(), kFar);
    frontier_.clear();
    for (const Edge& edge : edges) reach(edge.neighbour, 1);
    for (size_t i = 0; i < frontier_.size(); ++i) {
      const NodeId node = frontier_[i];
      for (const Edge& edge : edges_[node]) reach(edge.neighbour, steps_[node] + 1);
    }
  }

  void reach(NodeId node, uint32_t steps) {
    if (steps_[node] != kFar) return;
    steps_[node] = steps;
    if (!is_host(node)) frontier_.push_back(node);
  }

  void check_reached(uint32_t group) {
    for (NodeId from = 0; from < topology_.hosts && error_.empty(); ++from) {
      if (steps_[from] != kFar) continue;
      for (NodeId to = groups_[group]; to < topology_.hosts && error_.empty(); ++to) {
        if (to == from || routing_.ends_[to].group != group) continue;
        error_ = fmt::format(
            "{} cannot reach {} in topology {}; join them by cables and switches, for "
            "hosts do not forward",
            name_of(topology_, from), name_of(topology_, to), topology_.name);
      }
    }
  }

  // The links out of `node` that bring a packet one step nearer, as the number of a stored set.
  uint32_t next_set(NodeId node) {
    links_.clear();
    for (const Edge& edge : edges_[node]) {
      if (!is_host(edge.neighbour) && steps_[edge.neighbour] + 1 == steps_[node]) {
        links_.push_back(edge.link);
      }
    }
    std::ranges::sort(links_);
    const auto next = static_cast<uint32_t>(sets_.size());
    const auto [set, is_new] = sets_.try_emplace(links_, next);
    if (is_new) {
      routing_.set_links_.insert(routing_.set_links_.end(), links_.begin(), links_.end());
      routing_.set_begin_.push_back(static_cast<uint32_t>(routing_.set_links_.size()));
    }
    return set->second;
  }

  const Topology& topology_;
  std::vector<std::vector<Edge>> edges_;  // out of each node
  std::vector<NodeId> groups_;            // the first host of each
  std::unordered_map<std::vector<LinkId>, uint32_t, LinksHash> sets_;
  Routing routing_;
  std::string error_;
  // For the group that is being searched from.
  std::vector<uint32_t> steps_;
  std::vector<NodeId> frontier_;
  std::vector<LinkId> links_;
};

Result<Routing> make_routing(const Topology& topology) {
  RETURN_IF_ERROR(check_ends(topology));
  RoutingBuilder builder(topology, std::vector<bool>(topology.cables.size(), true));
  Routing routing = builder.build();
  if (builder.error().empty()) return routing;
  return fail(ErrorCode::kInvalidArgument, builder.error());
}

Routing make_routing(const Topology& topology, const std::vector<bool>& usable) {
  return RoutingBuilder(topology, usable).build();
}

}  // namespace pacecar
