// Which NICs of two processes are joined. Each NIC speaks over one or several networks
// (NicCaps::networks); two can be joined if and only if they have one in common.
//
// Pure. Thread rule: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace pacecar {

// A network's name, short enough for a handle.
using NetworkId = uint32_t;
NetworkId network_id(std::string_view name);

using NicNetworks = std::vector<NetworkId>;
using DeviceNetworks = std::vector<NicNetworks>;  // of each NIC that the device stands for

// Those over which all NICs of the device speak, in the order of the first.
NicNetworks common_networks(const DeviceNetworks& device);

// Whether each lane between the two joins NICs that have a network in common.
bool can_join(const DeviceNetworks& one, const DeviceNetworks& other);

// A device of ours and one of the peer's, by their places.
struct DevicePair {
  size_t own = 0;
  size_t peer = 0;

  bool operator==(const DevicePair&) const = default;
};

// The first of each side is the one that was asked for: both if they can be joined, else our one
// with another, else another with the peer's one, else the first others. nullopt: none can be
// joined.
std::optional<DevicePair> choose_devices(std::span<const DeviceNetworks> own,
                                         std::span<const DeviceNetworks> peer);

}  // namespace pacecar
