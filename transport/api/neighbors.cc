#include "transport/api/neighbors.h"

#include <algorithm>

namespace pacecar {
namespace {

NeighborLanes lanes_between(size_t device, const std::vector<Subnet>& own,
                            std::span<const NamedAddress> peer) {
  NeighborLanes lanes{.device = device, .members = {}, .peers = {}};
  for (size_t member = 0; member < own.size(); ++member) {
    const auto found = std::ranges::find_if(peer, [&](const NamedAddress& address) {
      return are_neighbors(own[member], address.subnet) &&
             std::ranges::count(lanes.peers, address) == 0;
    });
    if (found == peer.end()) continue;
    lanes.members.push_back(member);
    lanes.peers.push_back(*found);
  }
  return lanes;
}

}  // namespace

Way way_between(const Subnet& own, const Subnet& peer,
                bool (*leaves_by_own)(const Address& own, const Address& peer)) {
  const bool unknown = own.prefix == 0 || peer.prefix == 0;
  if (unknown || are_neighbors(own, peer)) return Way::kNeighbors;
  return leaves_by_own(address_of(own), address_of(peer)) ? Way::kRouted : Way::kAstray;
}

std::optional<NeighborLanes> choose_neighbors(std::span<const std::vector<Subnet>> own,
                                              std::span<const NamedAddress> peer,
                                              std::span<const uint8_t> requested) {
  std::vector<NamedAddress> listening;
  std::ranges::copy_if(peer, std::back_inserter(listening), [&](const NamedAddress& address) {
    return std::ranges::count(requested, address.nic) > 0;
  });
  for (size_t device = 0; device < own.size(); ++device) {
    for (const std::span<const NamedAddress> choice :
         {std::span<const NamedAddress>(listening), peer}) {
      NeighborLanes lanes = lanes_between(device, own[device], choice);
      if (!lanes.members.empty()) return lanes;
    }
  }
  return std::nullopt;
}

}  // namespace pacecar
