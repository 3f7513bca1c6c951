#include "transport/api/network_choice.h"

#include <algorithm>

#include "transport/api/lane_list.h"

namespace pacecar {
namespace {

bool share_one(const NicNetworks& one, const NicNetworks& other) {
  return std::ranges::find_first_of(one, other) != one.end();
}

}  // namespace

// FNV-1a, 32 bits: enough to distinguish a handful of networks.
NetworkId network_id(std::string_view name) {
  NetworkId hash = 0x811c9dc5;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x01000193;
  return hash;
}

NicNetworks common_networks(const DeviceNetworks& device) {
  NicNetworks common = device.front();
  std::erase_if(common, [&](NetworkId id) {
    return !std::ranges::all_of(
        device, [id](const NicNetworks& nic) { return std::ranges::count(nic, id) > 0; });
  });
  return common;
}

bool can_join(const DeviceNetworks& one, const DeviceNetworks& other) {
  for (size_t lane = 0; lane < lanes_between(one.size(), other.size()); ++lane) {
    if (!share_one(one[lane % one.size()], other[lane % other.size()])) return false;
  }
  return true;
}

std::optional<DevicePair> choose_devices(std::span<const DeviceNetworks> own,
                                         std::span<const DeviceNetworks> peer) {
  const auto joined = [&](size_t i, size_t k) { return can_join(own[i], peer[k]); };
  for (size_t k = 0; k < peer.size(); ++k) {
    if (joined(0, k)) return DevicePair{0, k};
  }
  for (size_t i = 1; i < own.size(); ++i) {
    if (joined(i, 0)) return DevicePair{i, 0};
  }
  for (size_t i = 1; i < own.size(); ++i) {
    for (size_t k = 1; k < peer.size(); ++k) {
      if (joined(i, k)) return DevicePair{i, k};
    }
  }
  return std::nullopt;
}

}  // namespace pacecar
