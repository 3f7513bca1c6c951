// Chooses the NICs of two processes that are joined. Each NIC is on one or several networks
// (NicCaps::networks); two can be joined if and only if they have one in common. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace pacecar {

using NetworkId = uint32_t;  // A network's name, short enough for a handle.
NetworkId network_id(std::string_view name);

using NicNetworks = std::vector<NetworkId>;
using DeviceNetworks = std::vector<NicNetworks>;  // of each NIC of the device

// The networks that all NICs of the device have, in the order of the first NIC.
NicNetworks common_networks(const DeviceNetworks& device);

// Whether each lane between the two joins NICs that have a network in common.
bool can_join(const DeviceNetworks& one, const DeviceNetworks& other);

// A device of ours and a device of the peer, by index.
struct DevicePair {
  size_t own = 0;
  size_t peer = 0;

  bool operator==(const DevicePair&) const = default;
};

// The first device of each side is the requested one. Chooses the first pair that can be joined:
// both requested devices; our requested one with another of the peer; another of ours with the
// peer's requested one; any two others. nullopt: no two can be joined.
std::optional<DevicePair> choose_devices(std::span<const DeviceNetworks> own,
                                         std::span<const DeviceNetworks> peer);

}  // namespace pacecar
