#include "transport/api/lane_list.h"

#include <algorithm>

#include "transport/base/check.h"
#include "transport/base/printable.h"
#include "transport/engine/bootstrap/auth.h"
#include "transport/wire/big_endian.h"

namespace pacecar {
namespace {

// A process's name in its handle: the common bytes of its NICs' identities; the listening device's
// count of NICs, their numbers, and the networks of each as bits; a list of networks: their count,
// then for each its id and the other device that has it (number of its first NIC, which the others
// follow; count of NICs; 0 for none). Then zeros.
constexpr size_t kCommonBytes = sizeof(NicIdentity) - 1;
constexpr size_t kCountAt = kCommonBytes;
constexpr size_t kNumbersAt = kCountAt + 1;
constexpr size_t kBitsAt = kNumbersAt + kMaxLanes;
constexpr size_t kNetworkCountAt = kBitsAt + kMaxLanes;
constexpr size_t kNetworksAt = kNetworkCountAt + 1;
constexpr size_t kNetworkBytes = 6;
constexpr size_t kMaxNics = 256;  // numbers have 8 bits
static_assert(kMaxNamedNetworks <= 8 &&
              kNetworksAt + kMaxNamedNetworks * kNetworkBytes <= sizeof(bootstrap::Identity));

struct NamedNetwork {
  NetworkId id = 0;
  uint8_t first = 0;
  uint8_t count = 0;
};

// The network's entry in the list; nullptr: no room.
NamedNetwork* place_of(NetworkId id, std::vector<NamedNetwork>& networks) {
  const auto found = std::ranges::find(networks, id, &NamedNetwork::id);
  if (found != networks.end()) return &*found;
  if (networks.size() == kMaxNamedNetworks) return nullptr;
  return &networks.emplace_back(NamedNetwork{.id = id});
}

bool are_consecutive(std::span<const uint8_t> numbers) {
  for (size_t i = 1; i < numbers.size(); ++i) {
    if (numbers[i] != numbers[i - 1] + 1) return false;
  }
  return true;
}

void write_networks(std::span<const NamedNetwork> networks, bootstrap::Identity& name) {
  name[kNetworkCountAt] = static_cast<uint8_t>(networks.size());
  for (size_t i = 0; i < networks.size(); ++i) {
    uint8_t* at = name.data() + kNetworksAt + i * kNetworkBytes;
    wire::store_be32(networks[i].id, at);
    at[4] = networks[i].first;
    at[5] = networks[i].count;
  }
}

std::vector<NamedNetwork> read_networks(const bootstrap::Identity& name) {
  std::vector<NamedNetwork> networks(name[kNetworkCountAt]);
  for (size_t i = 0; i < networks.size(); ++i) {
    const uint8_t* at = name.data() + kNetworksAt + i * kNetworkBytes;
    networks[i] = {.id = wire::load_be32(at), .first = at[4], .count = at[5]};
  }
  return networks;
}

// A device with all NICs on that network.
NamedDevice device_of(const NamedNetwork& network) {
  NamedDevice device{.numbers = {}, .networks = {network.count, NicNetworks{network.id}}};
  for (size_t i = 0; i < network.count; ++i) {
    device.numbers.push_back(static_cast<uint8_t>(network.first + i));
  }
  return device;
}

constexpr size_t kLengthBytes = 2;
constexpr uint8_t kNoLanes = 0;  // in place of the number of lanes

}  // namespace

NicIdentity random_identity() {
  NicIdentity identity{};
  PACECAR_CHECK(bootstrap::fill_random(identity));
  return identity;
}

NicIdentity identity_of_nic(NicIdentity process, uint8_t number) {
  process.back() = number;
  return process;
}

bootstrap::Identity name_process(const NicIdentity& nic, std::span<const NamedDevice> devices) {
  const NamedDevice& listening = devices.front();
  PACECAR_CHECK(!listening.numbers.empty() && listening.numbers.size() <= kMaxLanes);
  bootstrap::Identity name{};
  std::copy_n(nic.begin(), kCommonBytes, name.begin());
  name[kCountAt] = static_cast<uint8_t>(listening.numbers.size());
  std::vector<NamedNetwork> networks;
  networks.reserve(kMaxNamedNetworks);
  for (size_t i = 0; i < listening.numbers.size(); ++i) {
    name[kNumbersAt + i] = listening.numbers[i];
    for (const NetworkId id : listening.networks[i]) {
      const NamedNetwork* const place = place_of(id, networks);
      if (place == nullptr) continue;
      name[kBitsAt + i] |= static_cast<uint8_t>(1U << (place - networks.data()));
    }
  }
  const NicNetworks listened = common_networks(listening.networks);
  for (const NamedDevice& device : devices.subspan(1)) {
    if (!are_consecutive(device.numbers)) continue;
    for (const NetworkId id : common_networks(device.networks)) {
      if (std::ranges::count(listened, id) > 0) continue;
      NamedNetwork* const place = place_of(id, networks);
      if (place == nullptr || place->count > 0) continue;
      place->first = device.numbers.front();
      place->count = static_cast<uint8_t>(device.numbers.size());
    }
  }
  write_networks(networks, name);
  return name;
}

Result<NamedProcess> named_process(const bootstrap::Identity& name) {
  const auto malformed = [] {
    return fail(ErrorCode::kInvalidArgument,
                "the listener's handle does not name its NICs: run the same version of Pacecar on "
                "both sides");
  };
  const size_t count = name[kCountAt];
  if (count == 0 || count > kMaxLanes || name[kNetworkCountAt] > kMaxNamedNetworks) {
    return malformed();
  }
  NamedProcess process;
  std::copy_n(name.begin(), kCommonBytes, process.identity.begin());
  const std::vector<NamedNetwork> networks = read_networks(name);
  NamedDevice& listening = process.devices.emplace_back();
  for (size_t i = 0; i < count; ++i) {
    listening.numbers.push_back(name[kNumbersAt + i]);
    NicNetworks& own = listening.networks.emplace_back();
    for (size_t k = 0; k < networks.size(); ++k) {
      if ((name[kBitsAt + i] >> k & 1) != 0) own.push_back(networks[k].id);
    }
  }
  for (const NamedNetwork& network : networks) {
    if (network.count > kMaxLanes || network.first + network.count > kMaxNics) return malformed();
    if (network.count > 0) process.devices.push_back(device_of(network));
  }
  if (name_process(process.identity, process.devices) != name) return malformed();
  return process;
}

Blob pack_lanes(std::span<const Blob> lanes) {
  Blob packed;
  packed.push_back(static_cast<uint8_t>(lanes.size()));
  for (const Blob& lane : lanes) {
    packed.push_back(static_cast<uint8_t>(lane.size() >> 8));
    packed.push_back(static_cast<uint8_t>(lane.size()));
    packed.insert(packed.end(), lane.begin(), lane.end());
  }
  PACECAR_CHECK(packed.size() <= kMaxBootstrapPayload);
  return packed;
}

Result<std::vector<Blob>> unpack_lanes(std::span<const uint8_t> bytes) {
  const auto malformed = [] {
    return fail(ErrorCode::kPeer,
                "the peer names its lanes in another form: run the same version of Pacecar on both "
                "sides");
  };
  if (bytes.empty() || bytes[0] == 0 || bytes[0] > kMaxLanes) return malformed();
  std::vector<Blob> lanes(bytes[0]);
  bytes = bytes.subspan(1);
  for (Blob& lane : lanes) {
    if (bytes.size() < kLengthBytes) return malformed();
    const size_t length = size_t{bytes[0]} << 8 | bytes[1];
    bytes = bytes.subspan(kLengthBytes);
    if (bytes.size() < length) return malformed();
    lane.assign(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(length));
    bytes = bytes.subspan(length);
  }
  if (!bytes.empty()) return malformed();
  return lanes;
}

Blob address_offer(uint8_t nic, std::span<const uint8_t> words) {
  Blob lane(1 + words.size());
  lane[0] = nic;
  std::ranges::copy(words, lane.begin() + 1);
  return lane;
}

std::optional<AddressedOffer> addressed_offer(std::span<const uint8_t> lane) {
  if (lane.empty()) return std::nullopt;
  return AddressedOffer{.nic = lane.front(), .words = lane.subspan(1)};
}

Blob pack_no_lanes(std::string_view process) {
  const std::string text = printable(process.substr(0, kMaxProcessText));
  Blob packed(1 + text.size());
  packed[0] = kNoLanes;
  std::ranges::copy(text, packed.begin() + 1);
  return packed;
}

std::optional<std::string> unpack_no_lanes(std::span<const uint8_t> bytes) {
  if (bytes.empty() || bytes[0] != kNoLanes || bytes.size() > 1 + kMaxProcessText) {
    return std::nullopt;
  }
  return printable(std::string(bytes.begin() + 1, bytes.end()));
}

}  // namespace pacecar
