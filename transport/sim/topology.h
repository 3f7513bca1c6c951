// The shape of a simulated network: hosts, switches and cables. Pure data; builders for the usual
// shapes, and the readers of files, are in topologies.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/units.h"

namespace pacecar {

using NodeId = uint32_t;

// One direction of a cable, and the queue before it: cable i has 2i (a to b) and 2i + 1 (b to a).
using LinkId = uint32_t;

// A full-duplex cable; both directions are alike.
struct Cable {
  NodeId a = 0;
  NodeId b = 0;
  Rate rate;
  Duration delay;  // propagation
};

// Nodes 0 .. hosts-1 are hosts, the following are switches. A host has one cable per port of its
// NIC (two for a dual-port NIC on two leaves). Several processes of a host may share its NIC. They
// are numbered host by host: process p of host h is process h * processes + p of the network; with
// one per host, hosts and processes have the same numbers.
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

}  // namespace pacecar
