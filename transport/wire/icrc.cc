#include "transport/wire/icrc.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>

#include "transport/wire/address.h"
#include "transport/wire/big_endian.h"
#include "transport/wire/roce.h"

namespace pacecar::roce {
namespace {

constexpr size_t kLinkBytes = 8;  // all ones, in place of InfiniBand's link header
constexpr size_t kIpv4Bytes = 20;
constexpr size_t kUdpBytes = 8;
constexpr uint8_t kUdp = 17;
constexpr uint8_t kHopLimit = 64;
constexpr size_t kCongestionAt = 4;  // the byte of the BTH that is not covered

// The headers from the link to the BTH, with all ones in place of the bytes that are not covered.
struct CoveredHeaders {
  std::array<uint8_t, kLinkBytes + kMaxIpBytes + kUdpBytes + kBthBytes> bytes;
  size_t size = 0;
};

CoveredHeaders covered_headers(const Route& route, const uint8_t* bth, size_t datagram_bytes) {
  CoveredHeaders out;
  out.bytes.fill(0xFF);
  uint8_t* const ip = &out.bytes[kLinkBytes];
  uint8_t* at = ip + write_ip_header(route, datagram_bytes, ip);
  if (is_ipv4(route.source)) {
    ip[1] = ip[8] = ip[10] = ip[11] = 0xFF;  // type of service, time to live, checksum
  } else {
    ip[0] |= 0x0F;  // traffic class, flow label, hop limit
    ip[1] = ip[2] = ip[3] = ip[7] = 0xFF;
  }
  wire::store_be16(route.source.port, at);
  wire::store_be16(route.destination.port, at + 2);
  wire::store_be16(static_cast<uint16_t>(kUdpBytes + datagram_bytes), at + 4);
  at += kUdpBytes;
  std::memcpy(at, bth, kBthBytes);
  at[kCongestionAt] = 0xFF;
  out.size = static_cast<size_t>(at + kBthBytes - out.bytes.data());
  return out;
}

uint32_t stored_icrc(std::span<const uint8_t> datagram) {
  uint32_t stored;  // little-endian
  std::memcpy(&stored, datagram.data() + datagram.size() - kIcrcBytes, sizeof stored);
  return stored;
}

// --- polynomials over GF(2) modulo the CRC polynomial, coefficient of x^0 in the highest bit ---

constexpr uint32_t kPolynomial = 0xEDB8'8320;
constexpr uint32_t kOne = 1U << 31;
constexpr uint32_t kX = 1U << 30;
// x to the power of this is 1: the polynomial is primitive.
constexpr uint64_t kOrder = 0xFFFF'FFFF;

constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kPolynomial : 0);
  }
  return product;
}

constexpr uint32_t power_of_x(uint64_t exponent) {
  uint32_t power = kOne;
  for (uint32_t square = kX; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) power = multiply(power, square);
    square = multiply(square, square);
  }
  return power;
}

static_assert(multiply(power_of_x(1000), power_of_x(kOrder - 1000)) == kOne);

// Bytes between identification and datagram: the rest of the IPv4 header, and the UDP header.
constexpr size_t kBehindIdentification = kIpv4Bytes - 6 + kUdpBytes;

// The two bytes in the CRC's order, the first bit as the highest power.
constexpr uint32_t as_polynomial(uint16_t identification) {
  return uint32_t{static_cast<uint8_t>(identification >> 8)} << 16 |
         uint32_t{static_cast<uint8_t>(identification)} << 24;
}

}  // namespace

size_t write_ip_header(const Route& route, size_t datagram_bytes, uint8_t* to) {
  const auto udp_bytes = static_cast<uint16_t>(kUdpBytes + datagram_bytes);
  if (!is_ipv4(route.source)) {
    wire::store_be32(0x6000'0000, to);  // version 6
    wire::store_be16(udp_bytes, to + 4);
    to[6] = kUdp;
    to[7] = kHopLimit;
    std::ranges::copy(route.source.ip, to + 8);
    std::ranges::copy(route.destination.ip, to + 24);
    return kMaxIpBytes;
  }
  wire::store_be16(0x4500, to);  // version 4, five words
  wire::store_be16(static_cast<uint16_t>(kIpv4Bytes + udp_bytes), to + 2);
  wire::store_be32(route.ipv4_fragment, to + 4);
  to[8] = kHopLimit;
  to[9] = kUdp;
  wire::store_be16(0, to + 10);
  std::ranges::copy(std::span(route.source.ip).last(4), to + 12);
  std::ranges::copy(std::span(route.destination.ip).last(4), to + 16);
  return kIpv4Bytes;
}

uint32_t icrc(const Route& route, std::span<const uint8_t> header, std::span<const uint8_t> payload,
              std::span<const uint8_t> padding) {
  const CoveredHeaders covered = covered_headers(
      route, header.data(), header.size() + payload.size() + padding.size() + kIcrcBytes);
  uint32_t crc = crc32_gzip_refl(0, covered.bytes.data(), covered.size);
  const auto rest = header.subspan(kBthBytes);
  if (!rest.empty()) crc = crc32_gzip_refl(crc, rest.data(), rest.size());
  if (!payload.empty()) crc = crc32_gzip_refl(crc, payload.data(), payload.size());
  if (!padding.empty()) crc = crc32_gzip_refl(crc, padding.data(), padding.size());
  return crc;
}

bool verify_icrc(const Route& route, std::span<const uint8_t> datagram) {
  if (datagram.size() < kBthBytes + kIcrcBytes) return false;
  const auto covered = datagram.first(datagram.size() - kIcrcBytes);
  return stored_icrc(datagram) == icrc(route, covered, {}, {});
}

// Multiplication is linear: the products of single bits come first, then their sums.
Multiplier::Multiplier(uint32_t factor) {
  for (size_t nibble = 0; nibble < by_nibble_.size(); ++nibble) {
    auto& products = by_nibble_[nibble];
    for (uint32_t bit = 1; bit < products.size(); bit <<= 1) {
      products[bit] = multiply(bit << (4 * nibble), factor);
      for (uint32_t rest = 1; rest < bit; ++rest) {
        products[bit | rest] = products[bit] ^ products[rest];
      }
    }
  }
}

IdentificationEffect::IdentificationEffect(size_t datagram_bytes)
    : datagram_bytes_(datagram_bytes) {
  const uint64_t bits = 32 + 8 * (kBehindIdentification + datagram_bytes - kIcrcBytes);
  forward_ = Multiplier(power_of_x(bits));
  backward_ = Multiplier(power_of_x(kOrder - bits));
}

uint32_t IdentificationEffect::of(uint16_t identification) const {
  return forward_(as_polynomial(identification));
}

bool IdentificationEffect::explains(uint32_t difference) const {
  return (backward_(difference) & 0xFFFF) == 0;
}

bool verify_icrc(const Route& route, std::span<const uint8_t> datagram,
                 IdentificationEffects& effects) {
  if (datagram.size() < kBthBytes + kIcrcBytes) return false;
  const Route unidentified{route.source, route.destination, kIpv4Unidentified};
  const auto covered = datagram.first(datagram.size() - kIcrcBytes);
  const uint32_t difference = stored_icrc(datagram) ^ icrc(unidentified, covered, {}, {});
  if (difference == 0) return true;
  if (!is_ipv4(route.source)) return false;
  return effects.of_size(datagram.size()).explains(difference);
}

}  // namespace pacecar::roce
