// Reads a .topo file: a leaf-spine or fat-tree network, tier by tier.
//
//   Nodes 128                  hosts
//   Tiers 2                    2 or 3
//   Podsize 128                hosts per pod; with two tiers: all
//
//   Tier 0                     the leaves; then 1, and with three tiers 2, in any order
//   Downlink_speed_Gbps 400    of each cable to the tier below
//   Downlink_latency_ns 1000
//   Radix_down 16              cables of a switch to the tier below
//   Radix_up 16                cables of a switch to the tier above; not for the last tier
//   Bundle 1                   cables between the same two switches; optional
//   Switch_latency_ns 0        optional; becomes part of the cables' delay, half on either side
//   Oversubscribed 1           optional; checked against what radix and speed amount to
//
// Capitals do not matter; blank lines, and what follows a #, are skipped. Errors are
// kInvalidArgument (kSystem: the file cannot be read), one sentence with file, line and cure.
#pragma once

#include <string>
#include <string_view>

#include "transport/base/result.h"
#include "transport/sim/topology.h"

namespace pacecar {

// `file` is for messages, and becomes the network's name.
Result<Topology> parse_topo(std::string_view text, const std::string& file);
Result<Topology> read_topo_file(const std::string& path);

}  // namespace pacecar
