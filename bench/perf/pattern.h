// The bytes of a validated message. Every byte depends on the number of the message and on its
// offset, so that lost, repeated, swapped and shifted data are all detected. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace pacecar::perf {

inline constexpr size_t kPatternWord = sizeof(uint64_t);

// A multiplicative mix: neighbouring words and messages differ in about half of their bits.
inline uint64_t pattern_word(uint64_t number, uint64_t index) {
  uint64_t x = (number * 0x9e3779b97f4a7c15U) ^ (index + 0x632be59bd9b4e019U);
  x = (x ^ (x >> 31)) * 0xd6e8feb86659fd93U;
  return x ^ (x >> 32);
}

inline void fill_pattern(std::span<uint8_t> message, uint64_t number) {
  const size_t words = message.size() / kPatternWord;
  for (size_t i = 0; i < words; ++i) {
    const uint64_t word = pattern_word(number, i);
    std::memcpy(message.data() + i * kPatternWord, &word, kPatternWord);
  }
  const uint64_t last = pattern_word(number, words);
  const auto bytes = std::bit_cast<std::array<uint8_t, kPatternWord>>(last);
  std::copy_n(bytes.begin(), message.size() % kPatternWord, message.data() + words * kPatternWord);
}

// The offset of the first byte that differs from the pattern.
inline std::optional<size_t> find_mismatch(std::span<const uint8_t> message, uint64_t number) {
  size_t offset = 0;
  for (; message.size() - offset >= kPatternWord; offset += kPatternWord) {
    const uint64_t word = pattern_word(number, offset / kPatternWord);
    if (std::memcmp(message.data() + offset, &word, kPatternWord) != 0) break;
  }
  if (offset == message.size()) return std::nullopt;
  std::array<uint8_t, kPatternWord> expected;
  const uint64_t word = pattern_word(number, offset / kPatternWord);
  std::memcpy(expected.data(), &word, kPatternWord);
  const auto rest = message.subspan(offset, std::min(kPatternWord, message.size() - offset));
  const auto differs = std::mismatch(rest.begin(), rest.end(), expected.begin()).first;
  if (differs == rest.end()) return std::nullopt;
  return offset + static_cast<size_t>(differs - rest.begin());
}

}  // namespace pacecar::perf
