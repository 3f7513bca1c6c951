// The ICRC that ends every packet of RoCE v2: CRC-32 over its IP, UDP and InfiniBand headers and
// its payload, without what changes on the way (annex A17, 17.3.3). The packet I/O must know what
// the packet does not contain: addresses, ports, and over IPv4 the identification.
//
// Pure functions; any thread.
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
  // Of the IPv4 header: identification, flags and offset as one word.
  uint32_t ipv4_fragment = kIpv4Fragment;
};

// Of a packet in two pieces: header (at least a BTH), and payload with padding.
uint32_t icrc(const Route& route, std::span<const uint8_t> header, std::span<const uint8_t> payload,
              std::span<const uint8_t> padding);

// Whether the last four bytes of `datagram` are its ICRC. False for one too short for a BTH.
bool verify_icrc(const Route& route, std::span<const uint8_t> datagram);

// A product of polynomials with one that stays, modulo the CRC's: tables by four bits.
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
// the effect does not depend on the other bytes: it can be added afterwards, and removed if the
// identification is unknown.
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
  Multiplier forward_;   // from the two bytes to the end of the packet
  Multiplier backward_;  // by its inverse
};

// Sizes repeat: what has been computed for them is kept.
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

// Of datagrams over IPv4 whose identification is unknown.
class UnidentifiedIcrc {
 public:
  // As verify_icrc, with any identification in place of the route's.
  bool verify(const Route& route, std::span<const uint8_t> datagram);

 private:
  IdentificationEffects effects_;
};

}  // namespace pacecar::roce
