#include "transport/verbs/rate_limits.h"

#include <gtest/gtest.h>

namespace pacecar::rate_limits_test {
namespace {

constexpr FlowId kFlow = 3;
constexpr Rate kLine = Rate::from_gbps(100);

class RateLimitsTest : public testing::Test {
 protected:
  void periods(int count) {
    for (int i = 0; i < count; ++i) {
      now_ = now_ + RateLimits::kPeriod;
      limits_.on_time(now_);
    }
  }
  // The number of commands that the device would get.
  int settle() {
    int count = 0;
    for (; limits_.any_unequal(); ++count) limits_.pop_unequal();
    return count;
  }
  void expect_a_little_above(Rate rate) {
    EXPECT_GE(limits_.limit(kFlow).bps() * 16, rate.bps() * 17);
    EXPECT_LE(limits_.limit(kFlow).bps() * 2, rate.bps() * 3);
  }

  Instant now_;
  RateLimits limits_{{.least = Rate::from_bps(1'000'000), .most = kLine}, kLine, 8, now_};
};

TEST_F(RateLimitsTest, SlowFlowGetsALimitALittleAboveItsRate) {
  limits_.on_rate(kFlow, Rate::from_gbps(10));
  periods(1);
  EXPECT_EQ(limits_.limit(kFlow), Rate()) << "the flow may have been faster a moment ago";
  periods(1);
  expect_a_little_above(Rate::from_gbps(10));
  EXPECT_EQ(settle(), 1);
  limits_.on_rate(kFlow, Rate::from_gbps(5));
  periods(3);
  expect_a_little_above(Rate::from_gbps(5));
}

TEST_F(RateLimitsTest, LimitIsRemovedOnceTheFlowMayBeFaster) {
  limits_.on_rate(kFlow, Rate::from_gbps(10));
  periods(3);
  settle();
  limits_.on_rate(kFlow, Rate::from_gbps(12));
  EXPECT_EQ(limits_.limit(kFlow), Rate());
  EXPECT_EQ(settle(), 1);
}

TEST_F(RateLimitsTest, FlowThatMayExceedItsLimitIsUpdatedFirst) {
  for (FlowId flow = 0; flow < 8; ++flow) limits_.on_rate(flow, Rate::from_gbps(10));
  periods(2);
  EXPECT_EQ(settle(), 8);
  for (FlowId flow = 0; flow < 7; ++flow) limits_.on_rate(flow, Rate::from_gbps(2));
  periods(2);
  limits_.on_rate(7, kLine);
  EXPECT_EQ(limits_.unequal(), 7U);
}

TEST_F(RateLimitsTest, SmallChangesAndStopsSendNoCommand) {
  limits_.on_rate(kFlow, Rate::from_gbps(10));
  periods(3);
  settle();
  const Rate limit = limits_.limit(kFlow);
  for (const uint64_t mbps : {10'300, 9'700, 10'000, 9'500, 0, 10'100}) {
    limits_.on_rate(kFlow, Rate::from_bps(mbps * 1'000'000));
    periods(3);
  }
  EXPECT_EQ(limits_.limit(kFlow), limit);
  EXPECT_FALSE(limits_.any_unequal());
}

TEST_F(RateLimitsTest, FlowThatIsFastNowAndThenHasNoLimit) {
  for (int i = 0; i < 20; ++i) {
    limits_.on_rate(kFlow, Rate::from_gbps(i % 2 == 0 ? 90 : 10));
    periods(1);
    EXPECT_EQ(limits_.limit(kFlow), Rate());
  }
  EXPECT_FALSE(limits_.any_unequal());
}

TEST_F(RateLimitsTest, LimitKeepsTheBoundsOfTheDevice) {
  limits_ = RateLimits({.least = Rate::from_gbps(1), .most = Rate::from_gbps(8)}, kLine, 8, now_);
  limits_.on_rate(kFlow, Rate::from_bps(1'000'000));
  periods(3);
  EXPECT_EQ(limits_.limit(kFlow), Rate::from_gbps(1));
  limits_.on_rate(kFlow, Rate::from_gbps(10));
  periods(3);
  EXPECT_EQ(limits_.limit(kFlow), Rate()) << "above the largest limit of the device";
}

TEST_F(RateLimitsTest, StopRemovesAllLimits) {
  limits_.on_rate(kFlow, Rate::from_gbps(10));
  periods(3);
  settle();
  limits_.stop();
  EXPECT_EQ(limits_.limit(kFlow), Rate());
  EXPECT_EQ(settle(), 1);
  limits_.on_rate(kFlow, Rate::from_gbps(10));
  periods(3);
  EXPECT_EQ(limits_.limit(kFlow), Rate());
}

TEST(LaneLimitTest, RoundTripExcludesTheHoldOfTheLimit) {
  constexpr Bytes kChunk = 62'500;  // 50 us at 10 Gb/s, 5 us at line rate
  constexpr Duration kShortest = Duration::from_us(12);
  const Instant now = Instant::from_ns(1'000'000);
  const Instant departure = now + Duration::from_us(5);
  LaneLimit limit;
  EXPECT_EQ(limit.hold(now, departure, kChunk), Duration());
  EXPECT_EQ(limit.round_trip(kShortest, Duration()), kShortest);
  limit.set(Rate::from_gbps(10));
  const Duration held = limit.hold(now, departure, kChunk);
  EXPECT_EQ(held, Duration::from_us(45));
  EXPECT_EQ(limit.hold(now, departure, kChunk), Duration::from_us(95)) << "behind the first chunk";
  EXPECT_EQ(limit.round_trip(kShortest + held, held), kShortest);
  EXPECT_EQ(limit.round_trip(kShortest * 3 + held, held), kShortest * 3);
  EXPECT_EQ(limit.round_trip(kShortest + Duration::from_us(1), held), kShortest)
      << "a burst gives no round trip below the shortest one";
  EXPECT_EQ(limit.round_trip(kShortest / 2, held), kShortest / 2);
}

}  // namespace
}  // namespace pacecar::rate_limits_test
