#include "bench/sim/link_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/sim/spec_reader.h"
#include "transport/base/edit_distance.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

Result<NodeId> find_node(const Topology& topology, std::string_view name) {
  const auto found = std::ranges::find(topology.node_names, name);
  if (found != topology.node_names.end()) {
    return static_cast<NodeId>(found - topology.node_names.begin());
  }
  return invalid("the topology has no node '{}'{}: it has '{}' to '{}'", name,
                 did_you_mean(name, topology.node_names), topology.node_names.front(),
                 topology.node_names.back());
}

}  // namespace

std::string link_name(const Topology& topology, LinkId link) {
  return fmt::format("{} > {}", topology.node_names[topology.from(link)],
                     topology.node_names[topology.to(link)]);
}

Result<LinkId> find_link(const Topology& topology, std::string_view name) {
  const size_t arrow = name.find('>');
  if (arrow == std::string_view::npos) {
    return invalid("'{}' names no link: write it as 'leaf 0 > host 3'", name);
  }
  ASSIGN_OR_RETURN(const auto from, find_node(topology, trimmed(name.substr(0, arrow))));
  ASSIGN_OR_RETURN(const auto to, find_node(topology, trimmed(name.substr(arrow + 1))));
  for (LinkId link = 0; link < 2 * topology.cables.size(); ++link) {
    if (topology.from(link) == from && topology.to(link) == to) return link;
  }
  return invalid("no cable joins '{}' and '{}': name two neighbours", topology.node_names[from],
                 topology.node_names[to]);
}

}  // namespace pacecar
