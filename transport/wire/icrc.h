// The ICRC that ends every packet of RoCE v2: CRC-32 over its IP, UDP and InfiniBand headers and
// its payload, without what changes on the way (annex A17, 17.3.3). What the packet itself does not
// say, the packet I/O must know: addresses, ports, and over IPv4 the identification.
//
// Pure functions; any thread.
#pragma once

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

}  // namespace pacecar::roce
