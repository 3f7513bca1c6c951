// Ethernet frames with IPv4 and UDP, as they lie on the wire: what an attacker reads and writes.
// Sizes in bytes. Pure functions of bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace pacecar::attack {

inline constexpr size_t kEthernetBytes = 14;
inline constexpr size_t kIpBytes = 20;
inline constexpr size_t kUdpBytes = 8;
inline constexpr size_t kFrameHeaderBytes = kEthernetBytes + kIpBytes + kUdpBytes;

using Bytes = std::vector<uint8_t>;
using Mac = std::array<uint8_t, 6>;

// One end of what is said.
struct Endpoint {
  Mac mac{};
  uint32_t ip = 0;
  uint16_t port = 0;
};

struct Datagram {
  Endpoint from;
  Endpoint to;
  uint8_t traffic_class = 0;
  Bytes payload;
};

// Those in a frame: several where the sender's kernel leaves it to the network card to cut them
// (UDP_SEGMENT). What is no whole IPv4 datagram with UDP gives none.
std::vector<Datagram> datagrams_of(std::span<const uint8_t> frame);

// The whole frame; without a checksum of UDP, which IPv4 allows.
void encode(const Datagram& datagram, Bytes& frame);
// What a router, or the receiver, would say to the sender of that datagram (RFC 792): type and
// code, the word that belongs to them, and how the datagram began.
struct IcmpError {
  uint8_t type = 0;
  uint8_t code = 0;
  uint32_t word = 0;
};
void encode(const IcmpError& error, const Datagram& of, uint32_t from_ip, Bytes& frame);

}  // namespace pacecar::attack
