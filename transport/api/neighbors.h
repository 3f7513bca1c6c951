// Chooses NICs by subnet, for hosts whose NICs are not all on one network: rings and meshes of
// cables without a switch, rails that do not reach each other. Pure. Thread rule: any.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/api/lane_list.h"

namespace pacecar {

// How packets get from a NIC of ours to a NIC of the peer, the best way first.
enum class Way {
  kNeighbors,
  kRouted,  // by gateways
  kAstray,  // they have no route, or leave by another interface
};
// An unknown address counts as that of a neighbour.
Way way_between(const Subnet& own, const Subnet& peer,
                bool (*leaves_by_own)(const Address& own, const Address& peer));

// Lanes between NICs that are neighbours (are_neighbors).
struct NeighborLanes {
  size_t device = 0;            // ours
  std::vector<size_t> members;  // its NIC of each lane
  std::vector<NamedAddress> peers;

  bool operator==(const NeighborLanes&) const = default;
};

// `own`: the subnets of each device's NICs, the requested device first. `requested`: the numbers of
// the listening device's NICs. Prefers our requested device, then the peer's requested device. Each
// NIC is in one lane at most. nullopt: no two NICs are neighbours.
std::optional<NeighborLanes> choose_neighbors(std::span<const std::vector<Subnet>> own,
                                              std::span<const NamedAddress> peer,
                                              std::span<const uint8_t> requested);

}  // namespace pacecar
