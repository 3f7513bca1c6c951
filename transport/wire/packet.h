// What a packet is between the protocol (softnic) and a packet I/O. Descriptors only: no memory is
// owned here, no socket or device type appears.
#pragma once

#include <array>
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

  bool operator==(const Address&) const = default;
};

// Whatever port and scope. As two words: this is done for every packet.
inline bool same_ip(const Address& a, const Address& b) {
  std::array<uint64_t, 2> words[2];
  static_assert(sizeof words[0] == sizeof a.ip);
  std::memcpy(&words[0], a.ip.data(), sizeof a.ip);
  std::memcpy(&words[1], b.ip.data(), sizeof b.ip);
  return words[0] == words[1];
}

// Control writes have a class of their own, so that they never queue behind data.
enum class TrafficClass : uint8_t { kData, kControl };

// The ECN field of the IP header (RFC 3168, section 5).
enum class Ecn : uint8_t { kNotCapable = 0, kCapable1 = 1, kCapable0 = 2, kCongestion = 3 };

// Identification, flags and fragment offset of an IPv4 header as one word: not 0, so that no kernel
// chooses another, and "don't fragment". Packets that are never fragmented may all have the same
// identification (RFC 6864).
inline constexpr uint32_t kIpv4Fragment = 0x5043'4000;
// Likewise as UDP sockets send it, without an identification.
inline constexpr uint32_t kIpv4Unidentified = 0x0000'4000;

// One datagram to send: header, payload and trailer, gathered in this order.
struct TxPacket {
  std::span<const uint8_t> header;   // valid until PacketIo::send returns
  std::span<const uint8_t> payload;  // in registered memory; may be empty
  std::span<const uint8_t> trailer;  // valid until PacketIo::send returns; may be empty
  const Address* destination = nullptr;
  uint16_t path = 0;  // 0 .. PacketIoCaps::paths-1; a path is a UDP source port
  TrafficClass traffic_class = TrafficClass::kData;

  size_t size() const { return header.size() + payload.size() + trailer.size(); }
};

// The predicted place of the next payloads: consecutive packets of one write, each with
// `payload_bytes` except perhaps the last.
struct Placement {
  uint8_t* place = nullptr;  // of the first one's payload; null: nothing is predicted
  Bytes bytes = 0;           // of payload, in all; undefined until all have arrived
  Bytes payload_bytes = 0;
  size_t header_bytes = 0;
  size_t trailer_bytes = 0;
};

// One datagram received. The memory is the packet I/O's, valid until its next receive().
struct RxPacket {
  std::span<const uint8_t> bytes;
  const Address* source = nullptr;
  Ecn ecn = Ecn::kNotCapable;
  // How long it waited in this host before receive() returned it; 0: unknown. Without it the rest
  // is the network's delay.
  Duration waited;
  // Payload bytes between header and trailer that are not in `bytes`: a simulator that carries
  // payload as a length only leaves them out, and the receiver counts them as arrived.
  Bytes elided = 0;
  // A switch has cut off payload and trailer instead of dropping the packet: they are lost.
  bool trimmed = false;
  bool trimmed_in_core = false;  // by another switch than the last one; false when unknown
  std::span<const TelemetryHop> telemetry;  // in the order of the hops; empty without such switches
  // Payload that was received straight into its predicted place (PacketIo::predict): `bytes` is
  // header and trailer then, which must tell whether it belongs there.
  std::span<const uint8_t> placed;
  // That word of the IPv4 header, where PacketIoCaps::sees_ipv4_header.
  uint32_t ipv4_fragment = kIpv4Fragment;
};

}  // namespace pacecar
