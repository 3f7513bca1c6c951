// Messages by which hosts on one network resolve MAC addresses: ARP (RFC 826) for IPv4, neighbour
// discovery (RFC 4861) for IPv6. Pure. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "transport/io/frame.h"

namespace pacecar {

// Ports and scopes of the addresses are ignored.
struct NeighborMessage {
  enum class Kind : uint8_t {
    kQuestion,      // who has `target`?
    kAnswer,        // `sender` is at `sender_mac`; to one host
    kAnnouncement,  // `sender` is at `sender_mac`; to all hosts
  };
  Kind kind = Kind::kQuestion;
  Address sender;
  MacAddress sender_mac{};
  Address target;           // of an answer: the host that has asked
  MacAddress target_mac{};  // of an answer
};

inline constexpr size_t kMaxNeighborMessageBytes = 14 + kVlanTagBytes + 40 + 32;

// Returns the frame's length.
size_t write_neighbor_message(const NeighborMessage& message, const frame::Vlan& vlan,
                              std::span<uint8_t, kMaxNeighborMessageBytes> out);

// nullopt for other or malformed frames, and if the sender's MAC address is not of a single host.
std::optional<NeighborMessage> read_neighbor_message(std::span<const uint8_t> frame);

// fe80::/64 with the EUI-64 of the MAC (RFC 4291, appendix A).
Address link_local_address(const MacAddress& mac);

}  // namespace pacecar
