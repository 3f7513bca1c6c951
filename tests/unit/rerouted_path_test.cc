// One path, and when it is left for which other one: the rules of rerouted_path.h at their bounds.
#include "transport/softnic/rerouted_path.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

namespace pacecar {
namespace {

constexpr uint32_t kPaths = 64;
constexpr int64_t kRoundTrip = 800;  // ns

class ReroutedPathTest : public testing::Test {
 protected:
  void start(uint32_t paths = kPaths, int64_t floor_ns = 0) {
    path_ = std::make_unique<ReroutedPath>(paths, Duration::from_ns(floor_ns), prng_);
    hear(0, PathEvent::kGood, kRoundTrip);  // its round trip is known, and one begins
  }
  void hear(int64_t at_ns, PathEvent event, int64_t rtt_ns) {
    hear_of(path_->next(), at_ns, event, rtt_ns);
  }
  void hear_of(uint16_t path, int64_t at_ns, PathEvent event, int64_t rtt_ns) {
    path_->on_feedback(path,
                       {.event = event,
                        .rtt = Duration::from_ns(rtt_ns),
                        .now = Instant::from_ns(at_ns)},
                       prng_);
  }
  // A round trip of such packets, the last of which ends it.
  void round(int64_t begin_ns, int64_t rtt_ns, PathEvent event = PathEvent::kGood) {
    for (int64_t at = 1; at <= 4; ++at) hear(begin_ns + at * kRoundTrip / 4, event, rtt_ns);
  }
  // The paths that are tried, in turn.
  std::vector<uint16_t> candidates() {
    std::vector<uint16_t> taken(16);
    for (uint16_t& path : taken) path = path_->next();
    return taken;
  }

  Prng prng_{3};
  std::unique_ptr<ReroutedPath> path_;
};

TEST_F(ReroutedPathTest, IsLeftForAMeanDelayOfMoreThanAnEighth) {
  start();
  round(0, kRoundTrip * 9 / 8);
  EXPECT_FALSE(path_->searching());
  round(kRoundTrip, kRoundTrip * 9 / 8 + 1);
  EXPECT_TRUE(path_->searching());
}

TEST_F(ReroutedPathTest, OneLatePacketAmongOthersIsNoReason) {
  start();
  hear(1, PathEvent::kGood, 2 * kRoundTrip);
  for (int i = 0; i < 9; ++i) hear(2, PathEvent::kGood, kRoundTrip);
  hear(kRoundTrip, PathEvent::kGood, kRoundTrip);
  EXPECT_FALSE(path_->searching());
  hear(kRoundTrip + 1, PathEvent::kGood, 2 * kRoundTrip);
  for (int i = 0; i < 5; ++i) hear(kRoundTrip + 2, PathEvent::kGood, kRoundTrip);
  hear(2 * kRoundTrip, PathEvent::kGood, kRoundTrip);
  EXPECT_TRUE(path_->searching()) << "one in seven";
}

TEST_F(ReroutedPathTest, DelaysUpToTheFloorAreNoReason) {
  start(kPaths, 300);
  round(0, kRoundTrip + 300);
  EXPECT_FALSE(path_->searching());
  round(kRoundTrip, kRoundTrip + 301);
  EXPECT_TRUE(path_->searching());
}

TEST_F(ReroutedPathTest, AMarkIsAsMuchAsTwoFloors) {
  start(kPaths, 300);
  for (int i = 0; i < 2; ++i) hear(1, PathEvent::kMarked, kRoundTrip);
  for (int i = 0; i < 2; ++i) hear(2, PathEvent::kGood, kRoundTrip);
  hear(kRoundTrip, PathEvent::kGood, kRoundTrip);
  EXPECT_FALSE(path_->searching()) << "2 of 5: 240 ns";
  for (int i = 0; i < 3; ++i) hear(kRoundTrip + 1, PathEvent::kMarked, kRoundTrip);
  hear(kRoundTrip + 2, PathEvent::kGood, kRoundTrip);
  hear(2 * kRoundTrip, PathEvent::kGood, kRoundTrip);
  EXPECT_TRUE(path_->searching()) << "3 of 5: 360 ns";
}

TEST_F(ReroutedPathTest, IsLeftForMoreThanOneTrimmedInSixteen) {
  for (const int arrived : {15, 14}) {
    start();
    hear(1, PathEvent::kTrimmed, 0);
    EXPECT_TRUE(path_->searching()) << "or is about to";
    for (int i = 0; i < arrived - 1; ++i) hear(2, PathEvent::kGood, kRoundTrip);
    hear(kRoundTrip, PathEvent::kGood, kRoundTrip);
    EXPECT_EQ(path_->searching(), arrived == 14);
  }
}

TEST_F(ReroutedPathTest, IsLeftAtTheFirstLoss) {
  start();
  hear(1, PathEvent::kLost, 0);
  EXPECT_TRUE(path_->searching());
  const auto tried = candidates();
  EXPECT_GT(std::set<uint16_t>(tried.begin(), tried.end()).size(), 1U);
}

TEST_F(ReroutedPathTest, WordOfOtherPathsIsNone) {
  start();
  const auto other = static_cast<uint16_t>((path_->next() + 1) % kPaths);
  hear_of(other, 1, PathEvent::kLost, 0);
  hear_of(other, 2 * kRoundTrip, PathEvent::kGood, 10 * kRoundTrip);
  EXPECT_FALSE(path_->searching());
}

TEST_F(ReroutedPathTest, PacketsWhoseRoundTripIsUnknownSayNothing) {
  start();
  hear(1, PathEvent::kArrived, 0);
  hear(kRoundTrip, PathEvent::kArrived, 0);
  hear(2 * kRoundTrip, PathEvent::kArrived, 0);
  EXPECT_FALSE(path_->searching());
}

TEST_F(ReroutedPathTest, TheOnlyPathIsKept) {
  start(1);
  hear(1, PathEvent::kLost, 0);
  EXPECT_FALSE(path_->searching());
  EXPECT_EQ(path_->next(), 0);
}

TEST_F(ReroutedPathTest, ASearchTakesFourRoundTripsAndTriesItsCandidatesInTurn) {
  start();
  hear(1000, PathEvent::kLost, 0);
  const auto first = candidates();
  EXPECT_EQ(candidates(), first) << "in turn";
  hear(1000 + 4 * kRoundTrip - 1, PathEvent::kGood, kRoundTrip);
  EXPECT_TRUE(path_->searching());
  hear(1000 + 4 * kRoundTrip, PathEvent::kGood, kRoundTrip);
  EXPECT_FALSE(path_->searching());
}

TEST_F(ReroutedPathTest, TheSearchTakesTheLeastDelay) {
  start();
  hear(0, PathEvent::kLost, 0);
  const auto tried = candidates();
  const uint16_t best = tried[5];
  for (const uint16_t path : tried) {
    hear_of(path, 1, PathEvent::kGood, kRoundTrip + (path == best ? 50 : 60));
  }
  hear_of(tried[0], 4 * kRoundTrip, PathEvent::kGood, kRoundTrip + 60);
  ASSERT_FALSE(path_->searching());
  EXPECT_EQ(path_->next(), best);
}

TEST_F(ReroutedPathTest, TheSearchTakesTheFewestRefusalsFirst) {
  start();
  hear(0, PathEvent::kLost, 0);
  const auto tried = candidates();
  const uint16_t best = tried[7];
  for (const uint16_t path : tried) {
    hear_of(path, 1, PathEvent::kGood, path == best ? 2 * kRoundTrip : kRoundTrip);
    if (path != best) hear_of(path, 1, PathEvent::kTrimmed, 0);
  }
  hear_of(tried[0], 4 * kRoundTrip, PathEvent::kGood, kRoundTrip);
  EXPECT_EQ(path_->next(), best);
}

TEST_F(ReroutedPathTest, OnlyWhereSomethingArrivedIsGoodEnough) {
  start();
  hear(0, PathEvent::kLost, 0);
  const uint16_t one = candidates()[3];
  hear_of(one, 1, PathEvent::kGood, 5 * kRoundTrip);
  hear_of(one, 4 * kRoundTrip, PathEvent::kTrimmed, 0);
  EXPECT_FALSE(path_->searching());
  EXPECT_EQ(path_->next(), one);
}

TEST_F(ReroutedPathTest, WhereNothingArrivedItSearchesAgain) {
  start();
  hear(0, PathEvent::kLost, 0);
  const auto first = candidates();
  hear_of(first[0], 4 * kRoundTrip, PathEvent::kTrimmed, 0);
  EXPECT_TRUE(path_->searching());
  const auto second = candidates();
  EXPECT_NE(second, first) << "others";
  hear_of(second[0], 8 * kRoundTrip - 1, PathEvent::kGood, kRoundTrip);
  EXPECT_TRUE(path_->searching());
  hear_of(second[0], 8 * kRoundTrip, PathEvent::kGood, kRoundTrip);
  EXPECT_FALSE(path_->searching());
  EXPECT_EQ(path_->next(), second[0]);
}

// What was heard before a round trip counts no more after it.
TEST_F(ReroutedPathTest, EachRoundTripBeginsAnew) {
  start();
  hear(1, PathEvent::kTrimmed, 0);
  for (int i = 0; i < 20; ++i) hear(2, PathEvent::kGood, kRoundTrip);
  hear(kRoundTrip, PathEvent::kGood, kRoundTrip);
  EXPECT_FALSE(path_->searching()) << "nothing was refused in this one";
  hear(2 * kRoundTrip - 1, PathEvent::kGood, 3 * kRoundTrip);
  EXPECT_FALSE(path_->searching()) << "it is not over";
  hear(2 * kRoundTrip, PathEvent::kGood, 3 * kRoundTrip);
  EXPECT_TRUE(path_->searching());
}

}  // namespace
}  // namespace pacecar
