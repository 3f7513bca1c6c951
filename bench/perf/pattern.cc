#include "bench/perf/pattern.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace pacecar::perf {
namespace {

// A multiplicative mix: neighbouring words and messages differ in about half of their bits.
uint64_t pattern_word(uint64_t number, uint64_t index) {
  uint64_t x = (number * 0x9e3779b97f4a7c15U) ^ (index + 0x632be59bd9b4e019U);
  x = (x ^ (x >> 31)) * 0xd6e8feb86659fd93U;
  return x ^ (x >> 32);
}

constexpr size_t kWord = sizeof(uint64_t);

}  // namespace

void fill_pattern(std::span<uint8_t> message, uint64_t number) {
  const size_t words = message.size() / kWord;
  for (size_t i = 0; i < words; ++i) {
    const uint64_t word = pattern_word(number, i);
    std::memcpy(message.data() + i * kWord, &word, kWord);
  }
  const uint64_t last = pattern_word(number, words);
  std::memcpy(message.data() + words * kWord, &last, message.size() % kWord);
}

std::optional<size_t> find_mismatch(std::span<const uint8_t> message, uint64_t number) {
  size_t offset = 0;
  for (; message.size() - offset >= kWord; offset += kWord) {
    const uint64_t word = pattern_word(number, offset / kWord);
    if (std::memcmp(message.data() + offset, &word, kWord) != 0) break;
  }
  if (offset == message.size()) return std::nullopt;
  std::array<uint8_t, kWord> expected;
  const uint64_t word = pattern_word(number, offset / kWord);
  std::memcpy(expected.data(), &word, kWord);
  const auto rest = message.subspan(offset, std::min(kWord, message.size() - offset));
  const auto differs = std::mismatch(rest.begin(), rest.end(), expected.begin()).first;
  if (differs == rest.end()) return std::nullopt;
  return offset + static_cast<size_t>(differs - rest.begin());
}

}  // namespace pacecar::perf
