// Usual topologies: star, dumbbell, leaf-spine, fat tree, rails. Every cable is full duplex; a rate
// is per direction and cable. Hosts are numbered leaf by leaf, from 0. Errors are kInvalidArgument:
// one sentence that names the wrong field and the remedy.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/sim/topology.h"

namespace pacecar {

// The cables of one tier.
struct CableSpec {
  Rate rate = Rate::from_gbps(100);
  Duration delay = Duration::from_us(1);
};

// All hosts on one switch.
struct StarSpec {
  uint32_t hosts = 2;
  CableSpec cable;
};
Result<Topology> make_star(const StarSpec& spec);

// Hosts 0 .. left-1 on one switch, the others on a second, one cable between the two.
struct DumbbellSpec {
  uint32_t left = 1;
  uint32_t right = 1;
  CableSpec cable;
  CableSpec bottleneck;
};
Result<Topology> make_dumbbell(const DumbbellSpec& spec);

// Each leaf has `bundle` cables to each spine. The oversubscription follows from rates and numbers.
// If hosts have two ports, leaves come in pairs: each host of a pair has a cable to both of its
// leaves, and hosts_per_leaf counts the hosts of a pair.
struct LeafSpineSpec {
  uint32_t hosts = 16;
  uint32_t hosts_per_leaf = 4;
  uint32_t spines = 4;
  uint32_t bundle = 1;
  uint32_t ports_per_host = 1;
  CableSpec cable;
  CableSpec uplink;
};
Result<Topology> make_leaf_spine(const LeafSpineSpec& spec);

// Three tiers: pods of leaves and aggregation switches, and core switches above. Aggregation switch
// i of each pod has cables to the same cores_per_aggregation cores.
struct FatTreeSpec {
  uint32_t pods = 4;
  uint32_t leaves_per_pod = 2;
  uint32_t hosts_per_leaf = 2;
  uint32_t aggregations_per_pod = 2;
  uint32_t cores_per_aggregation = 2;
  uint32_t leaf_bundle = 1;  // cables between a leaf and an aggregation switch
  uint32_t core_bundle = 1;  // cables between an aggregation switch and a core
  CableSpec cable;
  CableSpec leaf_uplink;
  CableSpec core_uplink;
};
Result<Topology> make_fat_tree(const FatTreeSpec& spec);

// A fat tree of switches with `radix` ports. `hosts`: a multiple of a pod's hosts; 0: as many as
// possible (radix^3 / 4 without oversubscription). `oversubscription`: hosts of a leaf per uplink.
Result<FatTreeSpec> fat_tree_of_radix(uint32_t radix, uint32_t hosts = 0,
                                      uint32_t oversubscription = 1);

// Servers of several GPUs, each GPU with a NIC of its own: host = server * gpus_per_server + GPU.
// servers_per_leaf servers make a group. GPU i of each server of a group is on that group's leaf of
// rail i. All leaves are connected by the spines.
struct RailSpec {
  uint32_t servers = 4;  // a multiple of servers_per_leaf
  uint32_t gpus_per_server = 8;
  uint32_t servers_per_leaf = 0;  // 0: all
  uint32_t spines = 4;
  CableSpec cable;
  CableSpec uplink;
};
Result<Topology> make_rails(const RailSpec& spec);

// Reads a .topo file: a leaf-spine or fat-tree network, tier by tier.
//   Nodes 128                  hosts
//   Tiers 2                    2 or 3
//   Podsize 128                hosts per pod; with two tiers: all
//   Tier 0                     the leaves; then 1, and with three tiers 2, in any order
//   Downlink_speed_Gbps 400    of each cable to the tier below
//   Downlink_latency_ns 1000
//   Radix_down 16              cables of a switch to the tier below
//   Radix_up 16                cables of a switch to the tier above; not for the last tier
//   Bundle 1                   cables between the same two switches; optional
//   Switch_latency_ns 0        optional; becomes part of the cables' delay, half on either side
//   Oversubscribed 1           optional; checked against what radix and speed amount to
// Capitals do not matter; blank lines, and what follows a #, are skipped. Errors are
// kInvalidArgument (kSystem: the file cannot be read), one sentence with file, line and cure.
// `file` is for messages, and becomes the network's name.
Result<Topology> parse_topo(std::string_view text, const std::string& file);
Result<Topology> read_topo_file(const std::string& path);

}  // namespace pacecar
