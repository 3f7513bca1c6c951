// The ICRC at the end of RoCE v2 packets: CRC-32 over its IP, UDP and InfiniBand headers and its
// payload, without the fields that change on the way (annex A17, 17.3.3). It covers fields that
// only the packet I/O knows: addresses, ports, and over IPv4 the identification. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "transport/wire/packet.h"

namespace pacecar::roce {

// Source and destination, with the UDP ports; both of the same IP version.
struct Route {
  const Address& source;
  const Address& destination;
  // The IPv4 header's identification, flags and offset as one word.
  uint32_t ipv4_fragment = kIpv4Fragment;
};

inline constexpr size_t kMaxIpBytes = 40;
// Writes the IP header of a datagram, with zeros for type of service (IPv6: traffic class and flow
// label) and checksum. Returns its size: 20 bytes (IPv4) or kMaxIpBytes (IPv6).
size_t write_ip_header(const Route& route, size_t datagram_bytes, uint8_t* to);

// The ICRC of a packet: header (at least a BTH), payload and padding.
uint32_t icrc(const Route& route, std::span<const uint8_t> header, std::span<const uint8_t> payload,
              std::span<const uint8_t> padding);

// Whether the last four bytes of `datagram` are its ICRC. False if it is too short for a BTH.
bool verify_icrc(const Route& route, std::span<const uint8_t> datagram);

// Multiplies polynomials by a constant, modulo the CRC's polynomial: a table per four bits.
class Multiplier {
 public:
  Multiplier() = default;
  explicit Multiplier(uint32_t factor);

  uint32_t operator()(uint32_t value) const {
    uint32_t product = 0;
    for (const auto& of_nibble : by_nibble_) {
      product ^= of_nibble[value & 15];
      value >>= 4;
    }
    return product;
  }

 private:
  std::array<std::array<uint32_t, 16>, 8> by_nibble_{};  // the lowest first
};

// The effect of the IPv4 identification on the ICRC of datagrams of one size. A CRC is linear, so
// other bytes do not matter: it can be added later, and removed for an unknown identification.
class IdentificationEffect {
 public:
  IdentificationEffect() = default;
  explicit IdentificationEffect(size_t datagram_bytes);

  size_t datagram_bytes() const { return datagram_bytes_; }
  // The difference (XOR) from the ICRC with identification 0.
  uint32_t of(uint16_t identification) const;
  // Whether an identification makes this difference, as is so for one difference in 65,536.
  bool explains(uint32_t difference) const;

 private:
  size_t datagram_bytes_ = 0;
  Multiplier forward_;   // shifts from the identification to the end of the packet
  Multiplier backward_;  // the inverse
};

// A cache, because datagrams of the same sizes come again and again.
class IdentificationEffects {
 public:
  const IdentificationEffect& of_size(size_t datagram_bytes) {
    IdentificationEffect& effect = effects_[datagram_bytes / 4 % effects_.size()];
    if (effect.datagram_bytes() != datagram_bytes) effect = IdentificationEffect(datagram_bytes);
    return effect;
  }

 private:
  std::array<IdentificationEffect, 16> effects_;
};

// As verify_icrc, but over IPv4 any identification is accepted instead of the one in `route`.
bool verify_icrc(const Route& route, std::span<const uint8_t> datagram,
                 IdentificationEffects& effects);

}  // namespace pacecar::roce
