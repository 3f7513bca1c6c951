#include "transport/softnic/path_selector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace pacecar {
namespace {

constexpr uint32_t kPaths = 8;

std::vector<uint16_t> take(PathSelector& selector, size_t count) {
  std::vector<uint16_t> paths(count);
  std::ranges::generate(paths, [&] { return selector.next(); });
  return paths;
}

bool holds_all_once(std::vector<uint16_t> paths) {
  std::ranges::sort(paths);
  for (size_t i = 0; i < paths.size(); ++i) {
    if (paths[i] != i) return false;
  }
  return true;
}

TEST(PathSelector, RoundRobinCountsThroughThePaths) {
  PathSelector selector(PathPolicy::kRoundRobin, 3, 1);
  EXPECT_EQ(take(selector, 7), (std::vector<uint16_t>{0, 1, 2, 0, 1, 2, 0}));
}

TEST(PathSelector, FixedStaysOnOneThatTheSeedDecides) {
  std::set<uint16_t> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    PathSelector selector(PathPolicy::kFixed, kPaths, seed);
    const uint16_t path = selector.next();
    EXPECT_EQ(take(selector, 10), std::vector<uint16_t>(10, path));
    seen.insert(path);
  }
  EXPECT_EQ(seen.size(), kPaths);
}

TEST(PathSelector, StickyLeavesOnlyAPathThatLoses) {
  PathSelector selector(PathPolicy::kSticky, 2, 1);
  const uint16_t path = selector.next();
  const auto other = static_cast<uint16_t>(1 - path);
  selector.on_feedback(path, PathFeedback::kMarked);
  selector.on_feedback(path, PathFeedback::kTrimmed);
  selector.on_feedback(other, PathFeedback::kLost);  // word of long ago
  EXPECT_EQ(take(selector, 3), std::vector<uint16_t>(3, path));
  selector.on_feedback(path, PathFeedback::kLost);
  EXPECT_EQ(take(selector, 3), std::vector<uint16_t>(3, other));
  selector.on_feedback(other, PathFeedback::kLost);
  EXPECT_EQ(selector.next(), path);
}

TEST(PathSelector, RandomUsesAllPathsAboutEvenlyAndRepeatsWithItsSeed) {
  PathSelector selector(PathPolicy::kRandom, kPaths, 7);
  PathSelector same(PathPolicy::kRandom, kPaths, 7);
  const auto paths = take(selector, 8000);
  EXPECT_EQ(take(same, 8000), paths);
  for (uint16_t path = 0; path < kPaths; ++path) {
    EXPECT_NEAR(static_cast<double>(std::ranges::count(paths, path)), 1000, 150) << path;
  }
}

TEST(PathSelector, WithoutTroubleEveryRoundHasEveryPathOnceInAnOrderOfItsOwn) {
  for (const uint32_t paths : {1U, 5U, kPaths}) {  // also where they are no power of two
    PathSelector selector(PathPolicy::kPenalty, paths, 3);
    std::set<std::vector<uint16_t>> orders;
    for (int round = 0; round < 50; ++round) {
      const auto order = take(selector, paths);
      EXPECT_TRUE(holds_all_once(order));
      orders.insert(order);
    }
    EXPECT_GE(orders.size(), paths > 1 ? 2U : 1U);
  }
}

// The turns that a path is passed over after this feedback. In each round the seven others have a
// turn, and in the round of its return some of them have theirs before it.
int turns_left_out(PathFeedback feedback, int times = 1) {
  PathSelector selector(PathPolicy::kPenalty, kPaths, 3);
  for (int i = 0; i < times; ++i) selector.on_feedback(2, feedback);
  int others = 0;
  while (selector.next() != 2) ++others;
  return others / 7;
}

TEST(PathSelector, PenaltyLeavesAPathOutForSomeTurns) {
  EXPECT_EQ(turns_left_out(PathFeedback::kGood), 0);
  EXPECT_EQ(turns_left_out(PathFeedback::kMarked), 1);
  EXPECT_EQ(turns_left_out(PathFeedback::kMarked, 3), 3);
  EXPECT_EQ(turns_left_out(PathFeedback::kTrimmed), 4);
  EXPECT_EQ(turns_left_out(PathFeedback::kLost), 15);
  EXPECT_EQ(turns_left_out(PathFeedback::kLost, 9), 15) << "there is a largest penalty";
}

TEST(PathSelector, TroubleOnAllPathsStopsNone) {
  PathSelector selector(PathPolicy::kPenalty, kPaths, 3);
  for (uint16_t path = 0; path < kPaths; ++path) selector.on_feedback(path, PathFeedback::kLost);
  const auto paths = take(selector, 20 * kPaths);
  EXPECT_EQ(std::set(paths.begin(), paths.end()).size(), kPaths);
}

TEST(PathSelector, RecycleTakesGoodPathsFirstInTheirOrder) {
  PathSelector selector(PathPolicy::kRecycle, kPaths, 3);
  for (const uint16_t path : {5, 1, 5}) selector.on_feedback(path, PathFeedback::kGood);
  selector.on_feedback(6, PathFeedback::kMarked);
  EXPECT_EQ(take(selector, 3), (std::vector<uint16_t>{5, 1, 5}));
  const auto rest = take(selector, kPaths - 1);
  EXPECT_EQ(std::ranges::count(rest, 6), 0);
  EXPECT_EQ(std::set(rest.begin(), rest.end()).size(), kPaths - 1);
}

TEST(PathSelector, RemembersABoundedNumberOfGoodPaths) {
  PathSelector selector(PathPolicy::kRecycle, kPaths, 3);
  for (int i = 0; i < 1000; ++i) selector.on_feedback(4, PathFeedback::kGood);
  const auto paths = take(selector, 5 * kPaths);
  EXPECT_LE(std::ranges::count(paths, 4), 4 * kPaths + 1);
  EXPECT_LE(PathSelector::bytes(PathPolicy::kRecycle, kPaths), 16 * kPaths);
}

TEST(PathSelector, ForeignPathsAreIgnored) {
  PathSelector selector(PathPolicy::kRecycle, kPaths, 3);
  selector.on_feedback(kPaths, PathFeedback::kGood);
  selector.on_feedback(0xFFFF, PathFeedback::kLost);
  for (const uint16_t path : take(selector, 100)) EXPECT_LT(path, kPaths);
}

TEST(PathSelector, OnlySomeLearn) {
  EXPECT_FALSE(PathSelector(PathPolicy::kRoundRobin, kPaths, 1).learns());
  EXPECT_FALSE(PathSelector(PathPolicy::kFixed, kPaths, 1).learns());
  EXPECT_FALSE(PathSelector(PathPolicy::kRandom, kPaths, 1).learns());
  EXPECT_FALSE(PathSelector(PathPolicy::kSticky, kPaths, 1).learns());
  EXPECT_TRUE(PathSelector(PathPolicy::kPenalty, kPaths, 1).learns());
  EXPECT_TRUE(PathSelector(PathPolicy::kRecycle, kPaths, 1).learns());
}

}  // namespace
}  // namespace pacecar
