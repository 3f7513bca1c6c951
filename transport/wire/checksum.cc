#include "transport/wire/checksum.h"

#include <isa-l/crc.h>

#include <cstring>

namespace pacecar::wire {

uint32_t checksum(std::span<const uint8_t> header, std::span<const uint8_t> payload,
                  Coverage coverage) {
  uint32_t crc = crc32_gzip_refl(0, header.data(), header.size());
  if (coverage == Coverage::kFull) crc = crc32_gzip_refl(crc, payload.data(), payload.size());
  return crc;
}

void store_checksum(uint32_t value, std::span<uint8_t, kChecksumBytes> to) {
  std::memcpy(to.data(), &value, sizeof value);  // little-endian, as the host is (big_endian.h)
}

bool verify_checksum(std::span<const uint8_t> datagram, size_t header_bytes, Coverage coverage) {
  if (datagram.size() < kChecksumBytes || datagram.size() - kChecksumBytes < header_bytes) {
    return false;
  }
  // Header and payload are adjacent here, so one pass covers both.
  const size_t end = datagram.size() - kChecksumBytes;
  const size_t covered = coverage == Coverage::kFull ? end : header_bytes;
  uint32_t stored;
  std::memcpy(&stored, &datagram[end], sizeof stored);
  return stored == checksum(datagram.first(covered), {}, Coverage::kHeader);
}

}  // namespace pacecar::wire
