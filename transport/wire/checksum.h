// The checksum that ends a packet without a tag: CRC-32C (Castagnoli's polynomial, reflected, as in
// iSCSI, RFC 3720, 12.1), for which processors have an instruction. It is sent with the least
// significant byte first, as RoCE's ICRC. Unlike the ICRC it covers only the bytes from the BTH on,
// so addresses and ports may change in the network. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pacecar::wire {

inline constexpr size_t kChecksumBytes = 4;

// The ends of a connection agree on it. Acknowledgements are all header: for them both are equal.
enum class Coverage : uint8_t {
  kFull,    // header and payload
  kHeader,  // header only, for paths that protect the payload themselves
};

uint32_t checksum(std::span<const uint8_t> header, std::span<const uint8_t> payload,
                  Coverage coverage);

void store_checksum(uint32_t value, std::span<uint8_t, kChecksumBytes> to);

// Whether the last four bytes of `datagram` are the checksum of the bytes before them, the first
// `header_bytes` of which are the header. False if the datagram is too short for both.
bool verify_checksum(std::span<const uint8_t> datagram, size_t header_bytes, Coverage coverage);

}  // namespace pacecar::wire
