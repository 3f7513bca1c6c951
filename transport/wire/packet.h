// TxPacket, RxPacket: descriptors of packets, by which the software NIC and a packet I/O exchange
// them. They own no memory and contain no type of a socket or device. Also addresses of hosts.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <span>

#include "transport/base/telemetry.h"
#include "transport/base/units.h"

namespace pacecar {

// An IPv6 address (IPv4 as ::ffff:a.b.c.d) with UDP port and, for link-local addresses, the scope.
struct Address {
  std::array<uint8_t, 16> ip{};
  uint32_t scope_id = 0;
  uint16_t port = 0;

  auto operator<=>(const Address&) const = default;
};

// Compares the IP addresses only, as two words, because this is done for every packet.
inline bool same_ip(const Address& a, const Address& b) {
  std::array<uint64_t, 2> words[2];
  static_assert(sizeof words[0] == sizeof a.ip);
  std::memcpy(&words[0], a.ip.data(), sizeof a.ip);
  std::memcpy(&words[1], b.ip.data(), sizeof b.ip);
  return words[0] == words[1];
}

// Control writes have a class of their own, so that they do not queue behind data.
enum class TrafficClass : uint8_t { kData, kControl };

// The ECN field of the IP header (RFC 3168, section 5).
enum class Ecn : uint8_t { kNotCapable = 0, kCapable1 = 1, kCapable0 = 2, kCongestion = 3 };

// Identification, flags and fragment offset in IPv4 as one word: not 0, so that no kernel chooses
// another, and "don't fragment". Such packets may share an identification (RFC 6864).
inline constexpr uint32_t kIpv4Fragment = 0x5043'4000;
// The same word as UDP sockets send it, without an identification.
inline constexpr uint32_t kIpv4Unidentified = 0x0000'4000;

// One datagram to send: header, payload and trailer, gathered in this order.
struct TxPacket {
  std::span<const uint8_t> header;   // valid until PacketIo::send returns
  std::span<const uint8_t> payload;  // in registered memory; may be empty
  std::span<const uint8_t> trailer;  // valid until PacketIo::send returns; may be empty
  const Address* destination = nullptr;
  uint16_t path = 0;  // 0 .. PacketIoCaps::paths-1; a path is a UDP source port
  TrafficClass traffic_class = TrafficClass::kData;
  bool alone = false;  // must not be joined with others for the kernel to divide

  size_t size() const { return header.size() + payload.size() + trailer.size(); }
};

// One datagram received. The packet I/O owns the memory, which is valid until its next receive().
struct RxPacket {
  std::span<const uint8_t> bytes;
  const Address* source = nullptr;
  Ecn ecn = Ecn::kNotCapable;
  // How long the packet waited in this host before receive() returned it; 0: unknown. It is
  // subtracted from round trips, so that they contain only the network's delay.
  Duration waited;
  // Payload bytes between header and trailer that are not in `bytes`, from a simulator that carries
  // only the length of payload. The receiver counts them as arrived.
  Bytes elided = 0;
  bool trimmed = false;  // A switch has cut off payload and trailer instead of dropping the packet.
  bool trimmed_in_core = false;  // by another switch than the last one; false when unknown
  std::span<const TelemetryHop> telemetry;  // in the order of the hops; empty without such switches
  // As kIpv4Fragment, the received word; valid with PacketIoCaps::sees_ipv4_header.
  uint32_t ipv4_fragment = kIpv4Fragment;
};

}  // namespace pacecar
