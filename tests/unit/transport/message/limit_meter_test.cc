// LimitMeter: what limits a flow, as reported to all readers.
#include "transport/message/limit_meter.h"

#include <gtest/gtest.h>

namespace pacecar::limit_meter_test {
namespace {

constexpr Duration kTick = Duration::from_ms(5);

class LimitMeterTest : public testing::Test {
 protected:
  // Looks every 5 ms at a flow that sends at `gbps`; `backlog` is left to send at each look.
  void run(double gbps, Duration span, Bytes backlog = 1) {
    for (const Instant end = now_ + span; now_ < end;) {
      now_ = now_ + kTick;
      stats_.sent += static_cast<Bytes>(gbps * 1e9 / 8 * kTick.seconds());
      stats_.backlog = backlog;
      meter_.sample(now_, explanation_, stats_);
    }
  }
  LimitedBy limit() const { return meter_.limit(explanation_, stats_); }
  uint64_t count(LimitedBy limit) const { return meter_.counts()[static_cast<size_t>(limit)]; }

  Explanation explanation_{.limited_by = LimitedBy::kGrant, .rate = Rate::from_gbps(10)};
  FlowStats stats_;
  LimitMeter meter_;
  Instant now_;
};

TEST_F(LimitMeterTest, FlowThatUsesItsRateIsLimitedByTheBoundOfTheRate) {
  run(8, Duration::from_ms(200));
  EXPECT_EQ(limit(), LimitedBy::kGrant);
  EXPECT_EQ(count(LimitedBy::kGrant), 40U);
}

TEST_F(LimitMeterTest, FlowBelowHalfOfItsRateIsLimitedByTheHosts) {
  run(3, Duration::from_ms(200));
  EXPECT_EQ(limit(), LimitedBy::kHost);
  EXPECT_GT(count(LimitedBy::kHost), 30U);
  run(8, Duration::from_ms(100));
  EXPECT_EQ(limit(), LimitedBy::kGrant) << "the flow uses its rate again";
}

TEST_F(LimitMeterTest, FlowWithAFullWindowIsLimitedByTheWindow) {
  stats_.window_full = true;
  run(3, Duration::from_ms(200));
  EXPECT_EQ(limit(), LimitedBy::kWindow) << "not by the hosts";
  explanation_.limited_by = LimitedBy::kNetwork;
  stats_.sent += 1 << 30;
  run(8, Duration::from_ms(100));
  EXPECT_EQ(limit(), LimitedBy::kNetwork) << "which has made the window small";
}

TEST_F(LimitMeterTest, FlowOfWhichNothingIsAcknowledgedIsLimitedByTheNetwork) {
  stats_.in_flight = 1;
  run(3, Duration::from_ms(200));
  EXPECT_EQ(limit(), LimitedBy::kNetwork);
  ++stats_.acked;
  run(3, Duration::from_ms(20));
  EXPECT_EQ(limit(), LimitedBy::kHost);
}

TEST_F(LimitMeterTest, FlowWithoutABacklogIsLimitedByTheApplication) {
  run(3, Duration::from_ms(200));
  run(0, Duration::from_ms(50), 0);
  EXPECT_EQ(limit(), LimitedBy::kApplication);
  EXPECT_EQ(count(LimitedBy::kApplication), 10U);
  stats_.backlog = 1;
  EXPECT_EQ(limit(), LimitedBy::kHost) << "as before the short pause";
  run(0, Duration::from_ms(200), 0);
  stats_.backlog = 1;
  EXPECT_EQ(limit(), LimitedBy::kGrant) << "an old measurement does not count";
}

TEST_F(LimitMeterTest, GrantEqualToTheBudgetIsReportedAsTheBudget) {
  explanation_.rate_max = explanation_.rate;
  EXPECT_EQ(meter_.limit(explanation_, {.backlog = 1}), LimitedBy::kBudget);
  explanation_.rate_max = Rate::from_gbps(20);
  EXPECT_EQ(meter_.limit(explanation_, {.backlog = 1}), LimitedBy::kGrant);
}

TEST_F(LimitMeterTest, GrantWithinAThirtySecondOfTheBudgetIsReportedAsTheBudget) {
  const auto of = [&](uint64_t bps) {
    explanation_.rate = Rate::from_bps(bps);
    return meter_.limit(explanation_, {.backlog = 1});
  };
  explanation_.rate_max = Rate::from_bps(32'000);
  EXPECT_EQ(of(31'000), LimitedBy::kBudget);
  EXPECT_EQ(of(30'999), LimitedBy::kGrant);
  explanation_.limited_by = LimitedBy::kNetwork;
  EXPECT_EQ(of(32'000), LimitedBy::kNetwork) << "only the limit 'grant' becomes 'budget'";
}

// 64 KiB of a span may be missing by chance, so they count as sent.
TEST_F(LimitMeterTest, HalfOfTheRateIsExactlyTheBoundOfTheLimitByTheHosts) {
  const auto after_a_span = [](Bytes sent, Duration span) {
    LimitMeter meter;
    Explanation explanation{.limited_by = LimitedBy::kGrant, .rate = Rate::from_bps(800'000'000)};
    FlowStats stats{.backlog = 1};
    meter.sample(Instant(), explanation, stats);
    stats.sent += sent;
    meter.sample(Instant() + span, explanation, stats);
    return meter.limit(explanation, stats);
  };
  const Duration span = Duration::from_ms(20);
  constexpr Bytes kHalf = 1'000'000 - (64 << 10);  // in 20 ms
  EXPECT_EQ(after_a_span(kHalf, span), LimitedBy::kGrant);
  EXPECT_EQ(after_a_span(kHalf - 1, span), LimitedBy::kHost);
  EXPECT_EQ(after_a_span(0, span - Duration::from_ns(1)), LimitedBy::kGrant) << "too short a span";
}

TEST_F(LimitMeterTest, MeasurementCountsFor200Ms) {
  run(3, Duration::from_ms(25));  // one span, after the look that began it
  ASSERT_EQ(limit(), LimitedBy::kHost);
  const Instant measured = now_;
  const auto at = [&](Duration later) {
    LimitMeter meter = meter_;
    meter.sample(measured + later, explanation_, {.backlog = 0, .sent = stats_.sent});
    return meter.limit(explanation_, {.backlog = 1});
  };
  EXPECT_EQ(at(Duration::from_ms(200)), LimitedBy::kHost);
  EXPECT_EQ(at(Duration::from_ns(200'000'001)), LimitedBy::kGrant);
}

// A pause ends a span: the application is the reason that nothing was sent.
TEST_F(LimitMeterTest, SpanWithAPauseIsNoMeasurement) {
  run(8, Duration::from_ms(40));
  for (int i = 0; i < 20; ++i) {
    run(0, Duration::from_ms(5), 0);
    run(0, Duration::from_ms(15));
  }
  EXPECT_EQ(count(LimitedBy::kHost), 0U);
}

TEST_F(LimitMeterTest, SpanOfAFewPacketsIsNoMeasurement) {
  explanation_.rate = Rate::from_bps(10'000'000);
  run(0, Duration::from_ms(200));
  EXPECT_EQ(limit(), LimitedBy::kGrant);
}

}  // namespace
}  // namespace pacecar::limit_meter_test
