#include "bench/perf/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace pacecar::perf::pattern_test {
namespace {

std::vector<uint8_t> message(size_t size, uint64_t number) {
  std::vector<uint8_t> bytes(size);
  fill_pattern(bytes, number);
  return bytes;
}

TEST(Pattern, PatternOfAnySizeIsAccepted) {
  for (size_t size = 0; size <= 70; ++size) {
    EXPECT_EQ(find_mismatch(message(size, 5), 5), std::nullopt) << size;
  }
}

TEST(Pattern, EveryFlippedBitIsFoundAtItsOffset) {
  for (const size_t size : {1U, 7U, 8U, 9U, 29U}) {
    std::vector<uint8_t> bytes = message(size, 3);
    for (size_t bit = 0; bit < 8 * size; ++bit) {
      bytes[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
      ASSERT_EQ(find_mismatch(bytes, 3), bit / 8) << size;
      bytes[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
    }
  }
}

TEST(Pattern, PatternsOfOtherMessagesAndShiftedPatternsDiffer) {
  std::set<std::vector<uint8_t>> seen;
  for (uint64_t number = 0; number < 1000; ++number) {
    EXPECT_TRUE(seen.insert(message(16, number)).second) << number;
  }
  std::vector<uint8_t> shifted = message(64, 9);
  std::rotate(shifted.begin(), shifted.begin() + 8, shifted.end());
  EXPECT_EQ(find_mismatch(shifted, 9), 0U);
}

}  // namespace
}  // namespace pacecar::perf::pattern_test
