// The shape of a simulated network: hosts, switches and cables. Pure data; builders for the usual
// shapes, and the readers of files, are in topologies.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transport/base/result.h"
#include "transport/base/units.h"

namespace pacecar {

using NodeId = uint32_t;

// One direction of a cable, and the queue in front of it: of cable i, 2i is a to b, 2i + 1 b to a.
using LinkId = uint32_t;

// A full-duplex cable; both directions are alike.
struct Cable {
  NodeId a = 0;
  NodeId b = 0;
  Rate rate;
  Duration delay;  // propagation
};

// Nodes 0 .. hosts-1 are hosts, the following are switches. A host has one cable per port of its
// NIC (two for a dual-port NIC on two leaves).
//
// Several processes of a host may share its NIC. They are numbered host by host: process p of host
// h is process h * processes + p of the network; with one per host, hosts and processes have the
// same numbers.
struct Topology {
  std::string name;
  uint32_t hosts = 0;
  uint32_t processes = 1;  // of each host
  uint32_t switches = 0;
  std::vector<Cable> cables;
  std::vector<std::string> node_names;  // "host 3", "leaf 0", "spine 2": for reports

  uint32_t nodes() const { return hosts + switches; }
  uint32_t all_processes() const { return hosts * processes; }
  uint32_t host_of(uint32_t process) const { return process / processes; }
  const Cable& cable_of(LinkId link) const { return cables[link / 2]; }
  NodeId from(LinkId link) const { return link % 2 == 0 ? cable_of(link).a : cable_of(link).b; }
  NodeId to(LinkId link) const { return from(link ^ 1); }
};

// The shortest ways through a topology, every cable counting as one step: from each node, the links
// on which a packet for a host comes one step nearer. Hosts never forward.
//
// Hosts on the same switches share their routes, and equal sets of links are stored once, so that
// 8,192 hosts take a few megabytes. Immutable once made; any thread may read.
class Routing {
 public:
  // All equally good links out of `at`, in ascending order; none at the destination itself, and
  // none at a switch from which there is no way.
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

inline size_t pick_one(uint64_t hash, size_t choices) { return ((hash >> 32) * choices) >> 32; }

}  // namespace pacecar
