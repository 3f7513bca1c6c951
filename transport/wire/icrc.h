// The ICRC that ends every packet of RoCE v2: CRC-32 over its IP, UDP and InfiniBand headers and
// its payload, without what changes on the way (annex A17, 17.3.3). What the packet itself does not
// say, the packet I/O must know: addresses, ports, and over IPv4 the identification.
//
// Pure functions; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "transport/wire/packet.h"

namespace pacecar::roce {

// From whom to whom, with the UDP ports; both of the same IP version.
struct Route {
  const Address& source;
  const Address& destination;
  // Of the IPv4 header: identification, flags and offset as one word.
  uint32_t ipv4_fragment = kIpv4Fragment;
};

// Of a packet in two pieces: header (at least a BTH), and payload with padding.
uint32_t icrc(const Route& route, std::span<const uint8_t> header, std::span<const uint8_t> payload,
              std::span<const uint8_t> padding);

// Whether the last four bytes of `datagram` are its ICRC. False for one too short for a BTH.
bool verify_icrc(const Route& route, std::span<const uint8_t> datagram);

// What the identification of an IPv4 header does to the ICRC of datagrams of one size. A CRC is
// linear, so that this is the same whatever else the packet says: it can be put in afterwards, and
// taken out where nobody tells which identification it was.
class IdentificationEffect {
 public:
  IdentificationEffect() = default;
  explicit IdentificationEffect(size_t datagram_bytes);

  size_t datagram_bytes() const { return datagram_bytes_; }
  // The difference (XOR) from the ICRC with identification 0.
  uint32_t of(uint16_t identification) const;
  // Whether any identification makes this difference. One in 65,536 of all differences is.
  bool explains(uint32_t difference) const;

 private:
  size_t datagram_bytes_ = 0;
  uint32_t forward_ = 0;   // what the two bytes are multiplied by until the end of the packet
  uint32_t backward_ = 0;  // its inverse
};

// Of datagrams over IPv4 whose identification is unknown. Sizes repeat: what has been computed for
// them is kept.
class UnidentifiedIcrc {
 public:
  // As verify_icrc, with any identification in place of the route's.
  bool verify(const Route& route, std::span<const uint8_t> datagram);

 private:
  std::array<IdentificationEffect, 16> effects_;
};

}  // namespace pacecar::roce
