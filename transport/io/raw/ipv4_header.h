// The IPv4 and UDP headers of a datagram, made and read here. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/wire/packet.h"

namespace pacecar {

inline constexpr size_t kIpv4UdpBytes = 20 + 8;

// Without options; identification and flags are kIpv4Fragment. The kernel adds the IP checksum; of
// UDP there is none (RFC 768 allows that), since the payload has a better one.
void write_ipv4_udp(const Address& source, const Address& destination, uint8_t type_of_service,
                    size_t datagram_bytes, std::span<uint8_t, kIpv4UdpBytes> to);

struct Ipv4Datagram {
  std::span<const uint8_t> bytes;  // what UDP carries
  Address source;
  uint32_t fragment = 0;  // identification, flags and offset
  Ecn ecn = Ecn::kNotCapable;
};

// The destination of a UDP datagram, even a truncated one; nullopt without a UDP header.
std::optional<Address> ipv4_udp_destination(std::span<const uint8_t> packet);

// nullopt unless it is a complete UDP datagram.
std::optional<Ipv4Datagram> read_ipv4_udp(std::span<const uint8_t> packet);

}  // namespace pacecar
