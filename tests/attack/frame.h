// Ethernet frames with IPv4 and UDP, as an attacker reads and writes them. Sizes in bytes. Pure
// functions of bytes.
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

// The datagrams in a frame: several where the sender's kernel leaves segmentation to the NIC
// (UDP_SEGMENT); none of a frame that is not a whole IPv4 datagram with UDP.
std::vector<Datagram> datagrams_of(std::span<const uint8_t> frame);

// Encodes the whole frame, without a UDP checksum, which IPv4 allows.
void encode(const Datagram& datagram, Bytes& frame);
// An ICMP error (RFC 792) from a router, or from the receiver, to the sender of a datagram: type,
// code and the word that belongs to them. The frame also quotes the datagram's headers.
struct IcmpError {
  uint8_t type = 0;
  uint8_t code = 0;
  uint32_t word = 0;
};
void encode(const IcmpError& error, const Datagram& of, uint32_t from_ip, Bytes& frame);

}  // namespace pacecar::attack
