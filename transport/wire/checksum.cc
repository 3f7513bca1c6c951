#include "transport/wire/checksum.h"

#include <isa-l/crc.h>

#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace pacecar::wire {
namespace {

// Continues the CRC; the inversions before and after are checksum()'s.
uint32_t by_library(uint32_t crc, std::span<const uint8_t> bytes) {
  return crc32_iscsi(const_cast<uint8_t*>(bytes.data()), static_cast<int>(bytes.size()), crc);
}

#if defined(__x86_64__)

uint64_t word_at(const uint8_t* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// As _mm_crc32_u64, but can be inlined: compilers do not inline functions for processors with the
// instruction into functions for all processors.
[[gnu::always_inline]] inline uint64_t crc_of_word(uint64_t crc, const uint8_t* at) {
  asm("crc32q %1, %0" : "+r"(crc) : "rm"(word_at(at)));
  return crc;
}

constexpr size_t kDataHeaderWords = 5;
[[gnu::always_inline]] inline uint32_t by_words(uint32_t crc, const uint8_t* at) {
  uint64_t state = crc;
#pragma GCC unroll 5
  for (size_t i = 0; i < kDataHeaderWords; ++i) state = crc_of_word(state, at + 8 * i);
  return static_cast<uint32_t>(state);
}

// For headers: the library, made for kilobytes, takes four times as many instructions.
__attribute__((target("sse4.2"))) uint32_t by_instruction(uint32_t crc,
                                                          std::span<const uint8_t> bytes) {
  uint64_t state = crc;
  const uint8_t* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) state = _mm_crc32_u64(state, word_at(at));
  for (; left > 0; --left) state = _mm_crc32_u8(static_cast<uint32_t>(state), *at++);
  return static_cast<uint32_t>(state);
}

const bool kHasInstruction = __builtin_cpu_supports("sse4.2") != 0;

inline uint32_t of_header(uint32_t crc, std::span<const uint8_t> bytes) {
  constexpr size_t kFew = 128;
  if (!kHasInstruction || bytes.size() > kFew) return by_library(crc, bytes);
  if (bytes.size() == 8 * kDataHeaderWords) return by_words(crc, bytes.data());
  return by_instruction(crc, bytes);
}

#else

uint32_t of_header(uint32_t crc, std::span<const uint8_t> bytes) { return by_library(crc, bytes); }

#endif

}  // namespace

uint32_t checksum(std::span<const uint8_t> header, std::span<const uint8_t> payload,
                  Coverage coverage) {
  uint32_t crc = of_header(~0U, header);
  if (coverage == Coverage::kFull && !payload.empty()) crc = by_library(crc, payload);
  return ~crc;
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
