// GreedyNeighbor: when a neighbour that keeps a queue is recognized, and when it is forgotten.
#include "cc/pace/greedy_neighbor.h"

#include <gtest/gtest.h>

namespace pacecar::greedy_neighbor_test {
namespace {

constexpr Duration us(int64_t count) { return Duration::from_us(count); }

class CcPaceGreedyNeighbor : public ::testing::Test {
 protected:
  static constexpr Duration kTrip = us(100);
  static constexpr Duration kKept = us(40);
  static constexpr double kRate = 1e9;
  // A neighbour that keeps 40 us is recognized after 12 round trips of 140 us.
  static constexpr Duration kRecognition = (kTrip + kKept) * 12;

  bool look(Duration later, Duration delay, double rate, bool stands = true, bool given = true) {
    now_ = now_ + later;
    return neighbor_.look(now_, delay, stands, kTrip, rate, given);
  }
  bool look_without_queue(Duration later = {}) { return look(later, Duration(), kRate, false); }
  void recognize() {
    look_without_queue();
    EXPECT_FALSE(look(kRecognition - us(1), kKept, kRate / 2));
    EXPECT_TRUE(look(us(1), kKept, kRate / 2));
  }

  GreedyNeighbor neighbor_;
  Instant now_ = Instant::from_ns(1'000'000'000);
};

// --- recognition ---

TEST_F(CcPaceGreedyNeighbor, QueueThatStaysWhileTheRateHalvesIsANeighbors) {
  recognize();
  EXPECT_EQ(neighbor_.kept(), kKept);
  EXPECT_FALSE(look(us(1), kKept, kRate / 2)) << "the neighbour is recognized once";
  EXPECT_EQ(neighbor_.kept(), kKept);
}

TEST_F(CcPaceGreedyNeighbor, QueueThatStandsFromTheFirstLookIsANeighborsAfterTheSameTime) {
  EXPECT_FALSE(look(us(0), kKept, kRate));
  EXPECT_FALSE(look(us(1), kKept, kRate / 2)) << "it has not stood for long";
  EXPECT_FALSE(look(kRecognition - us(2), kKept, kRate / 2));
  EXPECT_TRUE(look(us(1), kKept, kRate / 2));
}

TEST_F(CcPaceGreedyNeighbor, DelayThatDoesNotStandIsNotANeighbors) {
  look_without_queue();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(look(us(140), kKept, kRate / 2, false));
  EXPECT_EQ(neighbor_.kept(), Duration());
}

TEST_F(CcPaceGreedyNeighbor, QueueThatIsGoneForAMomentIsNotANeighbors) {
  look_without_queue();
  for (int i = 0; i < 50; ++i) {
    EXPECT_FALSE(look(kRecognition - us(1), kKept, kRate / 2));
    EXPECT_FALSE(look_without_queue(us(1)));
  }
}

// A queue would also stand if all its users had yielded as little as we have.
TEST_F(CcPaceGreedyNeighbor, NeighborIsRecognizedOnlyAfterHalvingTheRate) {
  look_without_queue();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(look(us(140), kKept, kRate / 2 + 1));
  EXPECT_TRUE(look(us(1), kKept, kRate / 2));
}

TEST_F(CcPaceGreedyNeighbor, RateBeforeTheQueueCounts) {
  look(us(0), Duration(), kRate * 4, false);
  look(us(1), Duration(), kRate, false);
  EXPECT_FALSE(look(kRecognition, kKept, kRate));
  EXPECT_TRUE(look(us(1), kKept, kRate / 2));
}

// Somebody yields: users of our law, too, may need a while.
TEST_F(CcPaceGreedyNeighbor, QueueThatFallsByAQuarterRestartsRecognition) {
  look_without_queue();
  look(us(1000), us(100), kRate);
  look(us(1000), us(75), kRate / 2);
  EXPECT_FALSE(look(us(100), us(74), kRate / 4));
  EXPECT_FALSE(look(us(12 * 174 - 1), us(74), kRate / 2));
  EXPECT_TRUE(look(us(1), us(74), kRate / 2)) << "the rate has halved since before the fall";
  EXPECT_EQ(neighbor_.kept(), us(74));
}

TEST_F(CcPaceGreedyNeighbor, QueueThatFallsByLessIsANeighbors) {
  look_without_queue();
  look(us(0), us(100), kRate);
  EXPECT_FALSE(look(us(12 * 175 - 1), us(75), kRate / 2));
  EXPECT_TRUE(look(us(1), us(75), kRate / 2));
}

TEST_F(CcPaceGreedyNeighbor, QueueThatKeepsFallingIsNotANeighbors) {
  look_without_queue();
  for (int i = 0; i < 50; ++i) {
    EXPECT_FALSE(look(us(1000), us(100), kRate / 4));
    EXPECT_FALSE(look(us(1), us(74), kRate / 4));
  }
}

// --- forgetting ---

TEST_F(CcPaceGreedyNeighbor, NeighborIsForgottenWhenHalfOfItsDelayIsGone) {
  recognize();
  for (int i = 0; i < 20; ++i) look(us(500), kKept / 2, kRate / 2);
  EXPECT_EQ(neighbor_.kept(), kKept);
  look(us(1), kKept / 2 - us(1), kRate / 2);
  EXPECT_EQ(neighbor_.kept(), Duration());
}

TEST_F(CcPaceGreedyNeighbor, LongerDelayDoesNotChangeTheNeighbor) {
  recognize();
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(look(us(500), kKept * 5, kRate / 4));
  EXPECT_EQ(neighbor_.kept(), kKept);
}

// A neighbour gives way to the rate that we hold; a slow link does not.
TEST_F(CcPaceGreedyNeighbor, NeighborIsForgottenWhenWhatWeHoldDoesNotArrive) {
  recognize();
  look(kRecognition, kKept, kRate / 2, true, /*given=*/false);
  EXPECT_EQ(neighbor_.kept(), kKept);
  look(us(1), kKept, kRate / 2);
  look(kRecognition, kKept, kRate / 2, true, /*given=*/false);
  EXPECT_EQ(neighbor_.kept(), kKept) << "it had arrived in between";
  look(us(1), kKept, kRate / 2, true, /*given=*/false);
  EXPECT_EQ(neighbor_.kept(), Duration());
}

TEST_F(CcPaceGreedyNeighbor, ForgottenNeighborIsRecognizedAgainOnlyAfterAnotherHalf) {
  recognize();
  look(us(1), us(1), kRate / 2);
  ASSERT_EQ(neighbor_.kept(), Duration());
  EXPECT_FALSE(look(us(1), kKept, kRate / 2));
  EXPECT_FALSE(look(us(1), kKept, kRate / 4)) << "not at once";
  EXPECT_FALSE(look(kRecognition, kKept, kRate / 4 + 1));
  EXPECT_TRUE(look(us(1), kKept, kRate / 4));
}

// All hosts forget neighbours every four seconds of the clock, but not within a second of
// recognition.
TEST_F(CcPaceGreedyNeighbor, NeighborIsForgottenAtCommonMomentsOfTheClock) {
  for (const int64_t start_ms : {1000, 2900, 3100}) {
    neighbor_ = {};
    now_ = Instant() + Duration::from_ms(start_ms);
    recognize();
    const Instant again = Instant() + Duration::from_s(start_ms > 3000 ? 8 : 4);
    const Duration step = us(400);
    while (now_ + step < again) {
      look(step, kKept, kRate / 2);
      ASSERT_EQ(neighbor_.kept(), kKept);
    }
    look(again - now_, kKept, kRate / 2);
    EXPECT_EQ(neighbor_.kept(), Duration()) << start_ms;
  }
}

}  // namespace
}  // namespace pacecar::greedy_neighbor_test
