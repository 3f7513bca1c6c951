// When a flow leaves its path, and for which other one: the rules of rerouted_path.h at their
// bounds.
#include "transport/softnic/paths/rerouted_path.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

namespace pacecar::rerouted_path_test {
namespace {

constexpr uint32_t kPaths = 64;
constexpr int64_t kRoundTrip = 800;  // ns

class ReroutedPathTest : public testing::Test {
 protected:
  void start(uint32_t paths = kPaths, int64_t floor_ns = 0) {
    path_ = std::make_unique<ReroutedPath>(paths, Duration::from_ns(floor_ns), prng_);
    feedback(0, PathEvent::kGood, kRoundTrip);  // the round-trip time is known; a round trip begins
  }
  void feedback(int64_t at_ns, PathEvent event, int64_t rtt_ns) {
    feedback_of(path_->next(), at_ns, event, rtt_ns);
  }
  void feedback_of(uint16_t path, int64_t at_ns, PathEvent event, int64_t rtt_ns) {
    path_->on_feedback(
        path, {.event = event, .rtt = Duration::from_ns(rtt_ns), .now = Instant::from_ns(at_ns)},
        prng_);
  }
  // Feedback of four packets; the last one ends the round trip.
  void round(int64_t begin_ns, int64_t rtt_ns, PathEvent event = PathEvent::kGood) {
    for (int64_t at = 1; at <= 4; ++at) feedback(begin_ns + at * kRoundTrip / 4, event, rtt_ns);
  }
  // The paths that a search tries, in turn.
  std::vector<uint16_t> candidates() {
    std::vector<uint16_t> taken(16);
    for (uint16_t& path : taken) path = path_->next();
    return taken;
  }

  Prng prng_{3};
  std::unique_ptr<ReroutedPath> path_;
};

TEST_F(ReroutedPathTest, PathIsLeftForAMeanDelayAboveAnEighth) {
  start();
  round(0, kRoundTrip * 9 / 8);
  EXPECT_FALSE(path_->searching());
  round(kRoundTrip, kRoundTrip * 9 / 8 + 1);
  EXPECT_TRUE(path_->searching());
}

TEST_F(ReroutedPathTest, PathIsKeptIfOnlyOnePacketIsLate) {
  start();
  feedback(1, PathEvent::kGood, 2 * kRoundTrip);
  for (int i = 0; i < 9; ++i) feedback(2, PathEvent::kGood, kRoundTrip);
  feedback(kRoundTrip, PathEvent::kGood, kRoundTrip);
  EXPECT_FALSE(path_->searching());
  feedback(kRoundTrip + 1, PathEvent::kGood, 2 * kRoundTrip);
  for (int i = 0; i < 5; ++i) feedback(kRoundTrip + 2, PathEvent::kGood, kRoundTrip);
  feedback(2 * kRoundTrip, PathEvent::kGood, kRoundTrip);
  EXPECT_TRUE(path_->searching()) << "one in seven";
}

TEST_F(ReroutedPathTest, PathIsKeptForDelaysUpToTheFloor) {
  start(kPaths, 300);
  round(0, kRoundTrip + 300);
  EXPECT_FALSE(path_->searching());
  round(kRoundTrip, kRoundTrip + 301);
  EXPECT_TRUE(path_->searching());
}

TEST_F(ReroutedPathTest, MarkCountsAsADelayOfTwoFloors) {
  start(kPaths, 300);
  for (int i = 0; i < 2; ++i) feedback(1, PathEvent::kMarked, kRoundTrip);
  for (int i = 0; i < 2; ++i) feedback(2, PathEvent::kGood, kRoundTrip);
  feedback(kRoundTrip, PathEvent::kGood, kRoundTrip);
  EXPECT_FALSE(path_->searching()) << "2 of 5: 240 ns";
  for (int i = 0; i < 3; ++i) feedback(kRoundTrip + 1, PathEvent::kMarked, kRoundTrip);
  feedback(kRoundTrip + 2, PathEvent::kGood, kRoundTrip);
  feedback(2 * kRoundTrip, PathEvent::kGood, kRoundTrip);
  EXPECT_TRUE(path_->searching()) << "3 of 5: 360 ns";
}

TEST_F(ReroutedPathTest, PathIsLeftForMoreThanOneTrimmedPacketInSixteen) {
  for (const int arrived : {15, 14}) {
    start();
    feedback(1, PathEvent::kTrimmed, 0);
    EXPECT_TRUE(path_->searching()) << "searching or about to";
    for (int i = 0; i < arrived - 1; ++i) feedback(2, PathEvent::kGood, kRoundTrip);
    feedback(kRoundTrip, PathEvent::kGood, kRoundTrip);
    EXPECT_EQ(path_->searching(), arrived == 14);
  }
}

TEST_F(ReroutedPathTest, PathIsLeftAtTheFirstLoss) {
  start();
  feedback(1, PathEvent::kLost, 0);
  EXPECT_TRUE(path_->searching());
  const auto tried = candidates();
  EXPECT_GT(std::set<uint16_t>(tried.begin(), tried.end()).size(), 1U);
}

TEST_F(ReroutedPathTest, FeedbackOfOtherPathsIsIgnored) {
  start();
  const auto other = static_cast<uint16_t>((path_->next() + 1) % kPaths);
  feedback_of(other, 1, PathEvent::kLost, 0);
  feedback_of(other, 2 * kRoundTrip, PathEvent::kGood, 10 * kRoundTrip);
  EXPECT_FALSE(path_->searching());
}

TEST_F(ReroutedPathTest, FeedbackWithoutARoundTripTimeIsIgnored) {
  start();
  feedback(1, PathEvent::kArrived, 0);
  feedback(kRoundTrip, PathEvent::kArrived, 0);
  feedback(2 * kRoundTrip, PathEvent::kArrived, 0);
  EXPECT_FALSE(path_->searching());
}

TEST_F(ReroutedPathTest, OnlyPathIsKept) {
  start(1);
  feedback(1, PathEvent::kLost, 0);
  EXPECT_FALSE(path_->searching());
  EXPECT_EQ(path_->next(), 0);
}

TEST_F(ReroutedPathTest, SearchTriesCandidatesInTurnForFourRoundTrips) {
  start();
  feedback(1000, PathEvent::kLost, 0);
  const auto first = candidates();
  EXPECT_EQ(candidates(), first) << "in turn";
  feedback(1000 + 4 * kRoundTrip - 1, PathEvent::kGood, kRoundTrip);
  EXPECT_TRUE(path_->searching());
  feedback(1000 + 4 * kRoundTrip, PathEvent::kGood, kRoundTrip);
  EXPECT_FALSE(path_->searching());
}

TEST_F(ReroutedPathTest, SearchChoosesTheLeastDelay) {
  start();
  feedback(0, PathEvent::kLost, 0);
  const auto tried = candidates();
  const uint16_t best = tried[5];
  for (const uint16_t path : tried) {
    feedback_of(path, 1, PathEvent::kGood, kRoundTrip + (path == best ? 50 : 60));
  }
  feedback_of(tried[0], 4 * kRoundTrip, PathEvent::kGood, kRoundTrip + 60);
  ASSERT_FALSE(path_->searching());
  EXPECT_EQ(path_->next(), best);
}

TEST_F(ReroutedPathTest, SearchPrefersFewTrimmedPacketsOverALowDelay) {
  start();
  feedback(0, PathEvent::kLost, 0);
  const auto tried = candidates();
  const uint16_t best = tried[7];
  for (const uint16_t path : tried) {
    feedback_of(path, 1, PathEvent::kGood, path == best ? 2 * kRoundTrip : kRoundTrip);
    if (path != best) feedback_of(path, 1, PathEvent::kTrimmed, 0);
  }
  feedback_of(tried[0], 4 * kRoundTrip, PathEvent::kGood, kRoundTrip);
  EXPECT_EQ(path_->next(), best);
}

TEST_F(ReroutedPathTest, SearchChoosesTheOnlyPathWithAnArrival) {
  start();
  feedback(0, PathEvent::kLost, 0);
  const uint16_t one = candidates()[3];
  feedback_of(one, 1, PathEvent::kGood, 5 * kRoundTrip);
  feedback_of(one, 4 * kRoundTrip, PathEvent::kTrimmed, 0);
  EXPECT_FALSE(path_->searching());
  EXPECT_EQ(path_->next(), one);
}

TEST_F(ReroutedPathTest, SearchIsRepeatedIfNothingArrived) {
  start();
  feedback(0, PathEvent::kLost, 0);
  const auto first = candidates();
  feedback_of(first[0], 4 * kRoundTrip, PathEvent::kTrimmed, 0);
  EXPECT_TRUE(path_->searching());
  const auto second = candidates();
  EXPECT_NE(second, first) << "other candidates";
  feedback_of(second[0], 8 * kRoundTrip - 1, PathEvent::kGood, kRoundTrip);
  EXPECT_TRUE(path_->searching());
  feedback_of(second[0], 8 * kRoundTrip, PathEvent::kGood, kRoundTrip);
  EXPECT_FALSE(path_->searching());
  EXPECT_EQ(path_->next(), second[0]);
}

// Feedback counts only in its own round trip.
TEST_F(ReroutedPathTest, EachRoundTripIsJudgedAlone) {
  start();
  feedback(1, PathEvent::kTrimmed, 0);
  for (int i = 0; i < 20; ++i) feedback(2, PathEvent::kGood, kRoundTrip);
  feedback(kRoundTrip, PathEvent::kGood, kRoundTrip);
  EXPECT_FALSE(path_->searching()) << "one trimmed packet in 22 is too few";
  feedback(2 * kRoundTrip - 1, PathEvent::kGood, 3 * kRoundTrip);
  EXPECT_FALSE(path_->searching()) << "the round trip has not ended";
  feedback(2 * kRoundTrip, PathEvent::kGood, 3 * kRoundTrip);
  EXPECT_TRUE(path_->searching());
}

}  // namespace
}  // namespace pacecar::rerouted_path_test
