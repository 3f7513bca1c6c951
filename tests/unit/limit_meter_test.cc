// What limits a flow, as everybody who asks is told.
#include "transport/message/limit_meter.h"

#include <gtest/gtest.h>

namespace pacecar {
namespace {

constexpr Duration kTick = Duration::from_ms(5);

class LimitMeterTest : public testing::Test {
 protected:
  // Looks every 5 ms at a flow that sends at `gbps`, with something more to send after each.
  void run(double gbps, Duration span, Bytes backlog = 1) {
    for (const Instant end = now_ + span; now_ < end;) {
      now_ = now_ + kTick;
      standing_.sent += static_cast<Bytes>(gbps * 1e9 / 8 * kTick.seconds());
      standing_.backlog = backlog;
      meter_.look(now_, told_, standing_);
    }
  }
  LimitedBy limit() const { return meter_.limit(told_, standing_); }
  uint64_t count(LimitedBy limit) const { return meter_.counts()[static_cast<size_t>(limit)]; }

  Explanation told_{.limited_by = LimitedBy::kGrant, .rate = Rate::from_gbps(10)};
  FlowStanding standing_;
  LimitMeter meter_;
  Instant now_;
};

TEST_F(LimitMeterTest, WhoUsesItsRateIsLimitedByWhatBoundsIt) {
  run(8, Duration::from_ms(200));
  EXPECT_EQ(limit(), LimitedBy::kGrant);
  EXPECT_EQ(count(LimitedBy::kGrant), 40U);
}

TEST_F(LimitMeterTest, WhoUsesLessThanHalfOfItIsLimitedByTheHosts) {
  run(3, Duration::from_ms(200));
  EXPECT_EQ(limit(), LimitedBy::kHost);
  EXPECT_GT(count(LimitedBy::kHost), 30U);
  run(8, Duration::from_ms(100));
  EXPECT_EQ(limit(), LimitedBy::kGrant) << "it has become faster";
}

TEST_F(LimitMeterTest, WithoutABacklogItIsTheApplication) {
  run(3, Duration::from_ms(200));
  run(0, Duration::from_ms(50), 0);
  EXPECT_EQ(limit(), LimitedBy::kApplication);
  EXPECT_EQ(count(LimitedBy::kApplication), 10U);
  standing_.backlog = 1;
  EXPECT_EQ(limit(), LimitedBy::kHost) << "as before the short pause";
  run(0, Duration::from_ms(200), 0);
  standing_.backlog = 1;
  EXPECT_EQ(limit(), LimitedBy::kGrant) << "what was long ago says nothing";
}

TEST_F(LimitMeterTest, AGrantOfJustTheBudgetIsTheBudget) {
  told_.budget = told_.rate;
  EXPECT_EQ(meter_.limit(told_, {.backlog = 1}), LimitedBy::kBudget);
  told_.budget = Rate::from_gbps(20);
  EXPECT_EQ(meter_.limit(told_, {.backlog = 1}), LimitedBy::kGrant);
}

TEST_F(LimitMeterTest, AFewPacketsInASpanSayNothing) {
  told_.rate = Rate::from_bps(10'000'000);
  run(0, Duration::from_ms(200));
  EXPECT_EQ(limit(), LimitedBy::kGrant);
}

}  // namespace
}  // namespace pacecar
