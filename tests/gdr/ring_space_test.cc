// RingSpace: pieces never overlap, and all space becomes free again.
#include "gdr/ring_space.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

namespace pacecar::ring_space_test {
namespace {

constexpr size_t kUnit = RingSpace::kAlignment;

TEST(RingSpace, FullRingRefuses) {
  RingSpace ring(4 * kUnit);
  EXPECT_EQ(ring.take(4 * kUnit + 1), std::nullopt);
  EXPECT_EQ(ring.take(1), 0U);
  EXPECT_EQ(ring.take(kUnit), kUnit);
  EXPECT_EQ(ring.take(2 * kUnit), 2 * kUnit);
  EXPECT_EQ(ring.take(1), std::nullopt);
}

TEST(RingSpace, WrapsToFreedSpace) {
  RingSpace ring(4 * kUnit);
  ring.take(2 * kUnit);
  ring.take(kUnit);
  ring.give_back(0);
  EXPECT_EQ(ring.take(2 * kUnit), 0U) << "a piece must not wrap around the end";
  EXPECT_EQ(ring.take(1), std::nullopt);
  ring.give_back(2 * kUnit);
  EXPECT_EQ(ring.take(2 * kUnit), 2 * kUnit);
}

TEST(RingSpace, SpaceIsFreedInOrder) {
  RingSpace ring(2 * kUnit);
  ring.take(kUnit);
  ring.take(kUnit);
  ring.give_back(kUnit);
  EXPECT_EQ(ring.take(1), std::nullopt);
  ring.give_back(0);
  EXPECT_EQ(ring.take(2 * kUnit), 0U);
}

RC_GTEST_PROP(RingSpaceProperty, PiecesNeverOverlapAndAnEmptyRingTakesAll, ()) {
  const size_t bytes = *rc::gen::inRange<size_t>(1, 20) * kUnit;
  RingSpace ring(bytes);
  std::map<size_t, size_t> held;  // offset to size
  const auto steps = *rc::gen::container<std::vector<std::pair<bool, size_t>>>(
      rc::gen::pair(rc::gen::arbitrary<bool>(), rc::gen::inRange<size_t>(1, 8 * kUnit)));
  for (const auto& [takes, amount] : steps) {
    if (takes) {
      const auto offset = ring.take(amount);
      if (!offset) continue;
      RC_ASSERT(*offset + amount <= bytes);
      const bool overlaps = std::ranges::any_of(held, [&](const auto& piece) {
        return *offset < piece.first + piece.second && piece.first < *offset + amount;
      });
      RC_ASSERT_FALSE(overlaps);
      held[*offset] = amount;
    } else if (!held.empty()) {
      const auto piece = std::next(held.begin(), static_cast<long>(amount % held.size()));
      ring.give_back(piece->first);
      held.erase(piece);
    }
  }
  for (const auto& [offset, size] : held) ring.give_back(offset);
  RC_ASSERT(ring.take(bytes).value_or(1) == 0U);
}

}  // namespace
}  // namespace pacecar::ring_space_test
