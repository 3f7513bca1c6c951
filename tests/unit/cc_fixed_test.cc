#include <gtest/gtest.h>

#include "cc/fixed.h"
#include "tests/support/cc_script.h"
#include "tests/support/golden.h"

namespace pacecar {
namespace {

constexpr Bytes kMtu = 1024;

TEST(CcFixed, IgnoresTheNetworkButNotTheReceiver) {
  FixedController fixed(
      {.line_rate = Rate::from_gbps(10), .mtu = kMtu, .burst_bytes = {}, .base_rtt = {}});
  testing::CcScript s(fixed, kMtu);
  s.ack(5000, 10).loss().timeout();
  s.grant(Rate::from_gbps(4), Duration::from_us(20), Duration::from_ms(1), 1);
  s.wait(Duration::from_us(1500)).look();
  s.note("a grant of nothing still leaves the least rate");
  s.grant(Rate(), Duration(), Duration(), 2);
  testing::expect_golden("cc/fixed.txt", s.text());
}

TEST(CcFixed, WindowCoversTwoRoundTripsAndEightBursts) {
  FlowEnvironment e{
      .line_rate = Rate::from_gbps(10), .mtu = kMtu, .burst_bytes = 60 * kMtu, .base_rtt = {}};
  EXPECT_EQ(FixedController(e).decide(Instant()).window, 2'500'000U) << "1 ms assumed";
  e.base_rtt = Duration::from_us(100);
  EXPECT_EQ(FixedController(e).decide(Instant()).window, 8 * 60 * kMtu);
}

TEST(CcFixed, ABudgetThatIsTheRateIsWhatLimitsTheFlow) {
  FlowEnvironment e{.line_rate = Rate::from_gbps(1), .mtu = kMtu, .rate_max = Rate::from_gbps(1)};
  EXPECT_EQ(FixedController(e).decide(Instant()).limited_by, LimitedBy::kBudget);
  e.rate_max = Rate::from_gbps(2);
  EXPECT_EQ(FixedController(e).decide(Instant()).limited_by, LimitedBy::kLine);
}

TEST(CcFixed, AGrantOfAllThatTheFlowCouldUseLimitsNothing) {
  const FlowEnvironment e{.line_rate = Rate::from_gbps(100), .mtu = kMtu};
  FixedController fixed(e);
  const Instant now;
  const auto grant = [&](uint64_t bps, uint16_t epoch) {
    fixed.on_grant(now,
                   {.rate = Rate::from_bps(bps), .validity = Duration::from_s(1), .epoch = epoch});
    return fixed.explain(now);
  };
  EXPECT_EQ(grant(99'999'809'536, 1).limited_by, LimitedBy::kLine) << "the word rounds it off";
  const Explanation told = grant(90'000'000'000, 2);
  EXPECT_EQ(told.limited_by, LimitedBy::kGrant);
  EXPECT_EQ(told.grant, Rate::from_gbps(90)) << "and it is told";
  EXPECT_EQ(told.epoch, 2U);
}

}  // namespace
}  // namespace pacecar
