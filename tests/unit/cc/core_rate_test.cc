#include "cc/core_rate.h"

#include <gtest/gtest.h>

namespace pacecar::core_rate_test {
namespace {

constexpr Duration kRoundTrip = Duration::from_us(10);
constexpr Duration kInterval = Duration::from_us(15);

class CcCoreRate : public ::testing::Test {
 protected:
  CcCoreRate() { rate_.on_counts(now_, counts_); }
  // The rate after an interval with these arrivals.
  double after(const ArrivalCounts& more) {
    counts_.packets += more.packets;
    counts_.marked += more.marked;
    counts_.trimmed += more.trimmed;
    counts_.trimmed_in_core += more.trimmed_in_core;
    now_ = now_ + kInterval;
    rate_.on_counts(now_, counts_);
    return rate_.rate();
  }

  CoreRate rate_{kRoundTrip, 4};
  ArrivalCounts counts_;
  Instant now_ = Instant::from_ns(1'000'000);
};

TEST_F(CcCoreRate, RateIsFullWithoutCoreCongestion) {
  EXPECT_EQ(rate_.rate(), 1);
  EXPECT_EQ(after({.packets = 100}), 1);
  EXPECT_EQ(after({.packets = 100, .marked = 30}), 1) << "30% of marks are tolerated";
  EXPECT_EQ(after({.packets = 80, .trimmed = 20}), 1)
      << "trims of the last hop, which credit itself fills, do not count";
}

TEST_F(CcCoreRate, FallsByTheShareThatTheCoreTrimmed) {
  EXPECT_DOUBLE_EQ(after({.packets = 75, .trimmed = 25, .trimmed_in_core = 25}), 0.75);
  EXPECT_DOUBLE_EQ(after({.packets = 50, .trimmed = 50, .trimmed_in_core = 10}), 0.65);
}

TEST_F(CcCoreRate, SharesOfFewPacketsCountAsMuchAsOfMany) {
  EXPECT_DOUBLE_EQ(after({.packets = 9, .trimmed = 1, .trimmed_in_core = 1}), 0.9);
  EXPECT_DOUBLE_EQ(after({.packets = 1, .marked = 1}), 0.9 * (1 - (0.5 - 0.3) * 0.5));
}

TEST_F(CcCoreRate, FallsWithTheAverageShareOfMarks) {
  EXPECT_DOUBLE_EQ(after({.packets = 100, .marked = 100}), 1 - (0.5 - 0.3) * 0.5);
  EXPECT_DOUBLE_EQ(after({.packets = 100, .marked = 100}), 0.9 * (1 - (0.75 - 0.3) * 0.5));
}

TEST_F(CcCoreRate, RateStaysAboveMostOfAnEvenPart) {
  for (int i = 0; i < 9; ++i) after({.trimmed = 10, .trimmed_in_core = 10});
  EXPECT_DOUBLE_EQ(rate_.rate(), 0.9 / 4);
}

TEST_F(CcCoreRate, GrowthAcceleratesUnlessPacketsAreMarked) {
  after({.packets = 50, .trimmed = 50, .trimmed_in_core = 50});
  EXPECT_DOUBLE_EQ(after({.packets = 100}), 0.51);
  EXPECT_DOUBLE_EQ(after({.packets = 100}), 0.53);
  EXPECT_DOUBLE_EQ(after({.packets = 100, .marked = 1}), 0.54);
  EXPECT_DOUBLE_EQ(after({.packets = 100}), 0.62);
}

TEST_F(CcCoreRate, RateChangesOnceInOneAndAHalfRoundTrips) {
  counts_.trimmed = counts_.trimmed_in_core = 10;
  rate_.on_counts(now_ + kInterval - Duration::from_ns(1), counts_);
  EXPECT_EQ(rate_.rate(), 1);
}

TEST_F(CcCoreRate, RateIsFullAgainAfterAnIdleTime) {
  after({.trimmed = 10, .trimmed_in_core = 10});
  now_ = now_ + Duration::from_s(1);
  EXPECT_EQ(after({}), 1);
  EXPECT_DOUBLE_EQ(after({.packets = 90, .trimmed = 10, .trimmed_in_core = 10}), 0.9)
      << "later trims count again";
}

}  // namespace
}  // namespace pacecar::core_rate_test
