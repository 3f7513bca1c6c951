#include "cc/fixed.h"

#include <gtest/gtest.h>

#include "tests/support/cc_script.h"
#include "tests/support/golden.h"

namespace pacecar::fixed_test {
namespace {

constexpr Bytes kMtu = 1024;

TEST(CcFixed, IgnoresTheNetworkButNotTheReceiver) {
  FixedController fixed(
      {.line_rate = Rate::from_gbps(10), .mtu = kMtu, .burst_bytes = {}, .base_rtt = {}});
  test::CcScript s(fixed, kMtu);
  s.ack(5000, 10).loss().timeout();
  s.grant(Rate::from_gbps(4), Duration::from_us(20), Duration::from_ms(1), 1);
  s.wait(Duration::from_us(1500)).look();
  s.note("a grant of nothing still leaves the least rate");
  s.grant(Rate(), Duration(), Duration(), 2);
  test::expect_golden("cc/fixed.txt", s.text());
}

TEST(CcFixed, WindowCoversTwoRoundTripsAndEightBursts) {
  FlowEnvironment e{
      .line_rate = Rate::from_gbps(10), .mtu = kMtu, .burst_bytes = 60 * kMtu, .base_rtt = {}};
  EXPECT_EQ(FixedController(e).decide(Instant()).window, 2'500'000U) << "1 ms assumed";
  e.base_rtt = Duration::from_us(100);
  EXPECT_EQ(FixedController(e).decide(Instant()).window, 8 * 60 * kMtu);
}

TEST(CcFixed, RateMaxIsReportedAsTheLimitWhenItIsTheRate) {
  FlowEnvironment e{.line_rate = Rate::from_gbps(1), .mtu = kMtu, .rate_max = Rate::from_gbps(1)};
  EXPECT_EQ(FixedController(e).decide(Instant()).limited_by, LimitedBy::kBudget);
  e.rate_max = Rate::from_gbps(2);
  EXPECT_EQ(FixedController(e).decide(Instant()).limited_by, LimitedBy::kLine);
}

TEST(CcFixed, GrantOfTheLineRateIsNotReportedAsTheLimit) {
  const FlowEnvironment e{.line_rate = Rate::from_gbps(100), .mtu = kMtu};
  FixedController fixed(e);
  const Instant now;
  const auto grant = [&](uint64_t bps, uint16_t epoch) {
    fixed.on_grant(now,
                   {.rate = Rate::from_bps(bps), .validity = Duration::from_s(1), .epoch = epoch});
    return fixed.explain(now);
  };
  EXPECT_EQ(grant(99'999'809'536, 1).limited_by, LimitedBy::kLine)
      << "the grant word rounds the line rate down";
  const Explanation explanation = grant(90'000'000'000, 2);
  EXPECT_EQ(explanation.limited_by, LimitedBy::kGrant);
  EXPECT_EQ(explanation.grant, Rate::from_gbps(90)) << "the explanation has the grant";
  EXPECT_EQ(explanation.epoch, 2U);
}

// How every controller but pace's handles grants.
class CcGrantLimit : public ::testing::Test {
 protected:
  void grant(uint64_t gbps, uint16_t epoch, Duration phase = {}) {
    fixed_.on_grant(
        now_,
        {.rate = Rate::from_gbps(gbps), .phase = phase, .validity = kValidity, .epoch = epoch});
  }
  Rate rate() { return fixed_.decide(now_).rate; }

  static constexpr Duration kValidity = Duration::from_us(100);
  FixedController fixed_{{.line_rate = Rate::from_gbps(100), .mtu = kMtu}};
  Instant now_ = Instant::from_ns(1'000'000);
};

TEST_F(CcGrantLimit, GrantIsInForceUntilItsValidityEnds) {
  grant(40, 1);
  now_ = now_ + kValidity - Duration::from_ns(1);
  EXPECT_EQ(rate(), Rate::from_gbps(40));
  now_ = now_ + Duration::from_ns(1);
  EXPECT_EQ(rate(), Rate::from_gbps(20));
  now_ = now_ + kValidity * 1000;
  EXPECT_EQ(rate().bps(), 100'000'000'000 / 256);
}

TEST_F(CcGrantLimit, RepeatedGrantExtendsItsValidity) {
  grant(40, 1);
  now_ = now_ + kValidity / 2;
  grant(40, 1);
  now_ = now_ + kValidity * 3 / 4;
  EXPECT_EQ(rate(), Rate::from_gbps(40));
}

TEST_F(CcGrantLimit, EachNewGrantSetsItsPhase) {
  grant(40, 1, Duration::from_us(3));
  EXPECT_EQ(fixed_.decide(now_).first_send, now_ + Duration::from_us(3));
  now_ = now_ + Duration::from_us(20);
  grant(40, 2, Duration::from_us(5));
  EXPECT_EQ(fixed_.decide(now_).first_send, now_ + Duration::from_us(5));
}

TEST_F(CcGrantLimit, ExplanationReportsTheGrant) {
  grant(40, 7, Duration::from_us(3));
  now_ = now_ + Duration::from_us(20);
  const Explanation why = fixed_.explain(now_);
  EXPECT_EQ(why.grant, Rate::from_gbps(40));
  EXPECT_EQ(why.grant_age, Duration::from_us(20));
  EXPECT_EQ(why.phase, Duration::from_us(3));
  EXPECT_EQ(why.epoch, 7U);
}

}  // namespace
}  // namespace pacecar::fixed_test
