#include "transport/base/prng.h"

#include <gtest/gtest.h>

#include <array>

namespace pacecar::prng_test {
namespace {

TEST(Prng, SequenceMatchesTheReferenceImplementation) {
  Prng prng(0);
  EXPECT_EQ(prng.next_u64(), 0x99ec5f36cb75f2b4U);
  EXPECT_EQ(prng.next_u64(), 0xbf6e1f784956452aU);
  EXPECT_EQ(prng.next_u64(), 0x1a5f849d4933e6e0U);
  EXPECT_EQ(prng.next_u64(), 0x6aa594f1262d2d2cU);
}

TEST(Prng, BelowIsUniform) {
  constexpr int kDraws = 70'000;
  std::array<int, 7> counts{};
  Prng prng(1);
  for (int i = 0; i < kDraws; ++i) ++counts.at(prng.below(counts.size()));
  for (const int count : counts) EXPECT_NEAR(count, kDraws / 7, 500);  // 5 sigma
}

// 3 * 2^62: without rejection, a third of the values would be drawn twice as often.
TEST(Prng, BelowIsUniformWhereTheRangeDoesNotDivideTheWord) {
  constexpr uint64_t kRange = uint64_t{3} << 62;
  constexpr int kDraws = 30'000;
  std::array<int, 3> residues{};
  Prng prng(2);
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t value = prng.below(kRange);
    ASSERT_LT(value, kRange);
    ++residues.at(value % 3);
  }
  for (const int count : residues) EXPECT_NEAR(count, kDraws / 3, 410);  // 5 sigma
}

TEST(Prng, ChanceHasItsProbability) {
  constexpr int kDraws = 40'000;
  Prng prng(3);
  int hits = 0;
  for (int i = 0; i < kDraws; ++i) {
    EXPECT_FALSE(prng.chance(0));
    EXPECT_TRUE(prng.chance(1));
    if (prng.chance(0.25)) ++hits;
  }
  EXPECT_NEAR(hits, kDraws / 4, 433);  // 5 sigma
}

}  // namespace
}  // namespace pacecar::prng_test
