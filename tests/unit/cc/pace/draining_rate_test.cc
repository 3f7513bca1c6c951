// DrainingRate: what lasts of a cut, and what ends when the queue should be gone.
#include "cc/pace/draining_rate.h"

#include <gtest/gtest.h>

namespace pacecar::draining_rate_test {
namespace {

constexpr Duration us(int64_t count) { return Duration::from_us(count); }
constexpr Instant kNow = Instant::from_ns(1'000'000'000);

DrainingRate cut(Duration beyond, double through = 500) {
  DrainingRate rate{.lasting = 1000, .until = {}};
  rate.cut(kNow, through, beyond, us(100));
  return rate;
}

TEST(CcPaceDrainingRate, QuarterOfTheDecreaseLasts) {
  const DrainingRate rate = cut(us(80));  // 0.4 of the rate that passed, for two round trips
  EXPECT_DOUBLE_EQ(rate.lasting, 500 * 0.9);
  EXPECT_DOUBLE_EQ(rate.rate(), 500 * 0.9 * 0.7);
}

TEST(CcPaceDrainingRate, RestEndsAfterTwoRoundTrips) {
  DrainingRate rate = cut(us(80));
  EXPECT_FALSE(rate.poll(kNow + us(200) - Duration::from_ns(1)));
  EXPECT_DOUBLE_EQ(rate.rate(), 500 * 0.9 * 0.7);
  EXPECT_TRUE(rate.poll(kNow + us(200)));
  EXPECT_EQ(rate.rate(), rate.lasting);
  EXPECT_FALSE(rate.poll(kNow + us(300))) << "the rise is reported once";
}

TEST(CcPaceDrainingRate, AtMostHalfIsYieldedHoweverLongTheQueue) {
  EXPECT_DOUBLE_EQ(cut(us(100)).lasting, 500 * (1 - 0.5 / 4));
  EXPECT_DOUBLE_EQ(cut(us(9000)).lasting, 500 * (1 - 0.5 / 4));
  EXPECT_DOUBLE_EQ(cut(us(9000)).rate(), 500 * (1 - 0.5 / 4) * (1 - 0.5 * 3 / 4));
}

TEST(CcPaceDrainingRate, WithoutADelayToDrainTheRateIsWhatPassed) {
  for (const Duration beyond : {us(0), us(-50)}) {
    EXPECT_EQ(cut(beyond).rate(), 500);
    EXPECT_EQ(cut(beyond).lasting, 500);
  }
}

TEST(CcPaceDrainingRate, AnotherCutReplacesTheFirst) {
  DrainingRate rate = cut(us(80));
  rate.cut(kNow + us(150), 100, us(0), us(100));
  EXPECT_EQ(rate.rate(), 100);
  rate.cut(kNow + us(160), 100, us(80), us(100));
  EXPECT_FALSE(rate.poll(kNow + us(359)));
  EXPECT_TRUE(rate.poll(kNow + us(360)));
}

}  // namespace
}  // namespace pacecar::draining_rate_test
