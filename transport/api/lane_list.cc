#include "transport/api/lane_list.h"

#include <algorithm>
#include <bit>

#include "transport/base/check.h"
#include "transport/base/printable.h"
#include "transport/base/random_word.h"
#include "transport/engine/bootstrap/auth.h"
#include "transport/wire/big_endian.h"

namespace pacecar {
namespace {

// The bytes of a process's name in its handle.
struct NameBytes {
  // A network, or an address.
  struct Network {
    std::array<uint8_t, 4> id;  // big-endian; the IPv4 address
    // A network: the first NIC's number of the other device that has it, which the others follow,
    // and how many NICs it has; 0: none. An address: its NIC's number, and the prefix's length.
    uint8_t first;
    uint8_t count;
  };

  std::array<uint8_t, sizeof(NicIdentity) - 1> common;  // bytes of the NICs' identities
  // The listening device: how many NICs it has, their numbers, and the networks of each as bits.
  uint8_t nics;
  std::array<uint8_t, kMaxLanes> numbers;
  std::array<uint8_t, kMaxLanes> bits;
  uint8_t network_count;
  std::array<Network, kMaxNamedNetworks> networks;  // networks, then addresses
  uint8_t address_count;
  std::array<uint8_t, 2> zeros;
};
static_assert(sizeof(NameBytes) == sizeof(bootstrap::Identity) && kMaxNamedNetworks <= 8);
constexpr size_t kMaxNics = 256;  // numbers have 8 bits

// The network's entry in the list; nullptr: no room.
NameBytes::Network* place_of(NetworkId id, NameBytes& name) {
  const auto used = std::span(name.networks).first(name.network_count);
  const auto found = std::ranges::find(
      used, id, [](const auto& network) { return wire::load_be32(network.id.data()); });
  if (found != used.end()) return &*found;
  if (used.size() == kMaxNamedNetworks) return nullptr;
  NameBytes::Network& added = name.networks[name.network_count++];
  wire::store_be32(id, added.id.data());
  return &added;
}

bool are_consecutive(std::span<const uint8_t> numbers) {
  return std::ranges::adjacent_find(numbers, [](int one, int next) { return next != one + 1; }) ==
         numbers.end();
}

// A device with all NICs on that network.
NamedDevice device_of(const NameBytes::Network& network) {
  NamedDevice device{.numbers = {},
                     .networks = {network.count, NicNetworks{wire::load_be32(network.id.data())}}};
  for (size_t i = 0; i < network.count; ++i) {
    device.numbers.push_back(static_cast<uint8_t>(network.first + i));
  }
  return device;
}

constexpr size_t kLengthBytes = 2;
constexpr uint8_t kNoLanes = 0;  // in place of the number of lanes

}  // namespace

NicIdentity random_identity() { return random_value<NicIdentity>(); }

NicIdentity identity_of_nic(NicIdentity process, uint8_t number) {
  process.back() = number;
  return process;
}

bootstrap::Identity name_process(const NicIdentity& nic, std::span<const NamedDevice> devices,
                                 std::span<const NamedAddress> addresses) {
  const NamedDevice& listening = devices.front();
  PACECAR_CHECK(!listening.numbers.empty() && listening.numbers.size() <= kMaxLanes);
  NameBytes name{};
  std::copy_n(nic.begin(), name.common.size(), name.common.begin());
  name.nics = static_cast<uint8_t>(listening.numbers.size());
  for (size_t i = 0; i < listening.numbers.size(); ++i) {
    name.numbers[i] = listening.numbers[i];
    for (const NetworkId id : listening.networks[i]) {
      const NameBytes::Network* const place = place_of(id, name);
      if (place == nullptr) continue;
      name.bits[i] |= static_cast<uint8_t>(1U << (place - name.networks.data()));
    }
  }
  const NicNetworks listened = common_networks(listening.networks);
  for (const NamedDevice& device : devices.subspan(1)) {
    if (!are_consecutive(device.numbers)) continue;
    for (const NetworkId id : common_networks(device.networks)) {
      if (std::ranges::count(listened, id) > 0) continue;
      NameBytes::Network* const place = place_of(id, name);
      if (place == nullptr || place->count > 0) continue;
      place->first = device.numbers.front();
      place->count = static_cast<uint8_t>(device.numbers.size());
    }
  }
  for (const NamedAddress& address : addresses) {
    const size_t place = size_t{name.network_count} + name.address_count;
    if (place == kMaxNamedNetworks) break;
    NameBytes::Network& added = name.networks[place];
    wire::store_be32(address.subnet.ip, added.id.data());
    added.first = address.nic;
    added.count = address.subnet.prefix;
    ++name.address_count;
  }
  return std::bit_cast<bootstrap::Identity>(name);
}

Result<NamedProcess> named_process(const bootstrap::Identity& bytes) {
  const auto malformed = [] {
    return fail(ErrorCode::kInvalidArgument,
                "the listener's handle does not name its NICs: run the same version of Pacecar on "
                "both sides");
  };
  const auto name = std::bit_cast<NameBytes>(bytes);
  if (name.nics == 0 || name.nics > kMaxLanes || name.network_count > kMaxNamedNetworks ||
      name.address_count > kMaxNamedNetworks - name.network_count) {
    return malformed();
  }
  NamedProcess process;
  std::ranges::copy(name.common, process.identity.begin());
  const auto networks = std::span(name.networks).first(name.network_count);
  NamedDevice& listening = process.devices.emplace_back();
  for (size_t i = 0; i < name.nics; ++i) {
    listening.numbers.push_back(name.numbers[i]);
    NicNetworks& own = listening.networks.emplace_back();
    for (size_t k = 0; k < networks.size(); ++k) {
      if ((name.bits[i] >> k & 1) != 0) own.push_back(wire::load_be32(networks[k].id.data()));
    }
  }
  for (const NameBytes::Network& network : networks) {
    if (network.count > kMaxLanes || network.first + network.count > kMaxNics) return malformed();
    if (network.count > 0) process.devices.push_back(device_of(network));
  }
  for (const NameBytes::Network& address :
       std::span(name.networks).subspan(name.network_count, name.address_count)) {
    if (address.count == 0 || address.count > 32) return malformed();
    process.addresses.push_back(
        {.nic = address.first,
         .subnet = {.ip = wire::load_be32(address.id.data()), .prefix = address.count}});
  }
  if (name_process(process.identity, process.devices, process.addresses) != bytes) {
    return malformed();
  }
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
