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
constexpr size_t kIpv6Bytes = 40;
constexpr size_t kUdpBytes = 8;
constexpr uint8_t kUdp = 17;
constexpr size_t kCongestionAt = 4;  // byte of the BTH that is not covered

// The covered bytes of the headers, with all ones for the rest.
class CoveredHeaders {
 public:
  CoveredHeaders(const Route& route, size_t datagram_bytes) {
    bytes_.fill(0xFF);
    const size_t udp_bytes = kUdpBytes + datagram_bytes;
    if (is_ipv4(route.source)) {
      put_ipv4(route, udp_bytes);
    } else {
      put_ipv6(route, udp_bytes);
    }
    put16(route.source.port);
    put16(route.destination.port);
    put16(udp_bytes);
    size_ += 2;  // checksum
  }

  // The BTH, which follows.
  void put_bth(const uint8_t* bth) {
    std::memcpy(&bytes_[size_], bth, kBthBytes);
    bytes_[size_ + kCongestionAt] = 0xFF;
    size_ += kBthBytes;
  }

  std::span<const uint8_t> view() const { return std::span(bytes_).first(size_); }

 private:
  void put16(size_t value) {
    bytes_[size_++] = static_cast<uint8_t>(value >> 8);
    bytes_[size_++] = static_cast<uint8_t>(value);
  }
  void put(std::span<const uint8_t> bytes) {
    std::copy(bytes.begin(), bytes.end(), &bytes_[size_]);
    size_ += bytes.size();
  }
  void put_ipv4(const Route& route, size_t udp_bytes) {
    bytes_[size_] = 0x45;  // version 4, five words
    size_ += 2;            // type of service
    put16(kIpv4Bytes + udp_bytes);
    wire::store_be32(route.ipv4_fragment, &bytes_[size_]);
    size_ += 5;  // and time to live
    bytes_[size_] = kUdp;
    size_ += 3;  // and checksum
    put(std::span(route.source.ip).last(4));
    put(std::span(route.destination.ip).last(4));
  }
  void put_ipv6(const Route& route, size_t udp_bytes) {
    bytes_[size_] = 0x6F;  // version 6, traffic class
    size_ += 4;            // and flow label
    put16(udp_bytes);
    bytes_[size_] = kUdp;
    size_ += 2;  // and hop limit
    put(route.source.ip);
    put(route.destination.ip);
  }

  std::array<uint8_t, kLinkBytes + kIpv6Bytes + kUdpBytes + kBthBytes> bytes_;
  size_t size_ = kLinkBytes;
};

uint32_t stored_icrc(std::span<const uint8_t> datagram) {
  uint32_t stored;  // little-endian
  std::memcpy(&stored, datagram.data() + datagram.size() - kIcrcBytes, sizeof stored);
  return stored;
}

// --- polynomials over GF(2) modulo the CRC's, the coefficient of x^0 in the highest bit ---

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

// The bytes between the identification and the ICRC: the rest of the IPv4 header, UDP's, the
// datagram.
constexpr size_t kBehindIdentification = kIpv4Bytes - 6 + kUdpBytes;

// The two bytes in the CRC's order, the first bit as the highest power.
constexpr uint32_t as_polynomial(uint16_t identification) {
  return uint32_t{static_cast<uint8_t>(identification >> 8)} << 16 |
         uint32_t{static_cast<uint8_t>(identification)} << 24;
}

}  // namespace

uint32_t icrc(const Route& route, std::span<const uint8_t> header, std::span<const uint8_t> payload,
              std::span<const uint8_t> padding) {
  CoveredHeaders covered(route, header.size() + payload.size() + padding.size() + kIcrcBytes);
  covered.put_bth(header.data());
  uint32_t crc = crc32_gzip_refl(0, covered.view().data(), covered.view().size());
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

// Multiplication is linear: first the products of single bits, then the sums of these.
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

bool UnidentifiedIcrc::verify(const Route& route, std::span<const uint8_t> datagram) {
  if (datagram.size() < kBthBytes + kIcrcBytes) return false;
  const Route unidentified{route.source, route.destination, kIpv4Unidentified};
  const auto covered = datagram.first(datagram.size() - kIcrcBytes);
  const uint32_t difference = stored_icrc(datagram) ^ icrc(unidentified, covered, {}, {});
  if (difference == 0) return true;
  if (!is_ipv4(route.source)) return false;
  return effects_.of_size(datagram.size()).explains(difference);
}

}  // namespace pacecar::roce
