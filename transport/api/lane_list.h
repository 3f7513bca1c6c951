// The bytes that the bootstrap carries for a connection: the NICs of the listener's process, and
// the offers and answers of each lane's messengers. A connection between two single NICs has one
// lane. Pure, except random_identity(). Thread rule: any.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/api/network_choice.h"
#include "transport/base/result.h"
#include "transport/engine/bootstrap/wire.h"
#include "transport/message/handshake.h"
#include "transport/wire/subnet.h"

namespace pacecar {

constexpr size_t kMaxLanes = 8;

// The device with more NICs has one lane for each; the other device's NICs take turns.
constexpr size_t lanes_between(size_t here, size_t there) { return here > there ? here : there; }

// The NICs of one process have identities that differ in their last byte only.
NicIdentity random_identity();
NicIdentity identity_of_nic(NicIdentity process, uint8_t number);

// A device of a listener's process, as its handle names it.
struct NamedDevice {
  std::vector<uint8_t> numbers;  // of its NICs: 1 to kMaxLanes
  DeviceNetworks networks;       // of each NIC

  bool operator==(const NamedDevice&) const = default;
};
// The address of a NIC to which peers of its subnet may connect.
struct NamedAddress {
  uint8_t nic = 0;
  Subnet subnet;

  bool operator==(const NamedAddress&) const = default;
};
struct NamedProcess {
  NicIdentity identity{};  // of its NICs; the last byte is 0
  // The listening device, then one for each network that it lacks.
  std::vector<NamedDevice> devices;
  std::vector<NamedAddress> addresses;

  bool operator==(const NamedProcess&) const = default;
};

// `devices`: the listening one, then all possible replacements. The name has room for
// kMaxNamedNetworks networks and addresses; the first device's networks and addresses come first.
constexpr size_t kMaxNamedNetworks = 6;
bootstrap::Identity name_process(const NicIdentity& nic, std::span<const NamedDevice> devices,
                                 std::span<const NamedAddress> addresses = {});
// Errors: kInvalidArgument (bytes that name_process does not write).
Result<NamedProcess> named_process(const bootstrap::Identity& name);

using Blob = std::vector<uint8_t>;
// 1 to kMaxLanes offers, or answers, which fit into the bootstrap's payload.
Blob pack_lanes(std::span<const Blob> lanes);
Result<std::vector<Blob>> unpack_lanes(std::span<const uint8_t> bytes);  // Errors: kPeer.

// An offer for the listener's NIC of that number.
struct AddressedOffer {
  uint8_t nic = 0;
  std::span<const uint8_t> words;
};
Blob address_offer(uint8_t nic, std::span<const uint8_t> words);
// nullopt: it names no NIC.
std::optional<AddressedOffer> addressed_offer(std::span<const uint8_t> lane);

// Sent instead of offers if the two sides share no network: the list of this side's NICs, for the
// listener's error message, cut to kMaxProcessText bytes.
constexpr size_t kMaxProcessText = 1024;
Blob pack_no_lanes(std::string_view process);
// nullopt: the bytes are something else. The text is printable.
std::optional<std::string> unpack_no_lanes(std::span<const uint8_t> bytes);

}  // namespace pacecar
