// The shortest ways through a topology, every cable counting as one step: from each node, the links
// on which a packet for a host comes one step nearer. Hosts never forward. Hosts on the same
// switches share their routes, and equal sets of links are stored once, so that 8,192 hosts take a
// few megabytes. Immutable once made; any thread may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/result.h"
#include "transport/sim/topology.h"

namespace pacecar {

class Routing {
 public:
  // All equally good links out of `at`, in ascending order; none at the destination itself, and
  // none at a switch that has no way to it.
  std::span<const LinkId> next_links(NodeId at, uint32_t destination_host) const {
    if (at == destination_host) return {};
    const Ends& to = ends_[destination_host];
    for (uint32_t i = to.begin; i < to.end;) {  // a neighbour of the destination
      const uint32_t first = i;
      while (i < to.end && neighbours_[i] == neighbours_[first]) ++i;
      if (neighbours_[first] == at) return {arriving_.data() + first, i - first};
    }
    const uint32_t row = rows_[at];
    if (row == kOnlyWay) return {leaving_.data() + ends_[at].begin, ends_[at].size()};
    const uint32_t set = table_[size_t{to.group} * row_count_ + row];
    return {set_links_.data() + set_begin_[set], set_begin_[set + 1] - set_begin_[set]};
  }

 private:
  friend class RoutingBuilder;
  static constexpr uint32_t kOnlyWay = ~0U;  // a host with at most one neighbour: all its links

  // A host's cables, as a range of the three vectors below, ordered by neighbour and link; hosts
  // with the same neighbours form a group.
  struct Ends {
    uint32_t begin = 0;
    uint32_t end = 0;
    uint32_t group = 0;

    uint32_t size() const { return end - begin; }
  };
  std::vector<Ends> ends_;  // by host
  std::vector<NodeId> neighbours_;
  std::vector<LinkId> leaving_;
  std::vector<LinkId> arriving_;

  uint32_t row_count_ = 0;
  std::vector<uint32_t> rows_;       // by node
  std::vector<uint32_t> table_;      // [group][row]: a set of links
  std::vector<uint32_t> set_begin_;  // set i: set_links_[set_begin_[i] .. set_begin_[i + 1])
  std::vector<LinkId> set_links_;
};

// Errors: kInvalidArgument, one sentence that names the cable or the two hosts at fault.
Result<Routing> make_routing(const Topology& topology);
// Over the cables that are `usable` alone (by number), wherever they lead.
Routing make_routing(const Topology& topology, const std::vector<bool>& usable);

// Which of several equally good links a packet takes: by source, destination and path (UDP source
// port), differently at each switch.

// Every bit of the result depends on every bit of `word`; a bijection.
inline uint64_t mix_bits(uint64_t word) {
  word = (word ^ (word >> 32)) * 0xD6E8FEB86659FD93U;
  word = (word ^ (word >> 32)) * 0xD6E8FEB86659FD93U;
  return word ^ (word >> 32);
}

// Hosts are below 2^24.
inline uint64_t flow_hash(uint32_t source, uint32_t destination, uint16_t path) {
  return mix_bits(uint64_t{source} << 40 | uint64_t{destination} << 16 | path);
}

// `links` has one at least.
inline LinkId pick_link(std::span<const LinkId> links, uint64_t hash) {
  return links[((mix_bits(hash) >> 32) * links.size()) >> 32];
}

}  // namespace pacecar
