// The sender's half of rccc, in figures of a 400 Gb/s fabric with a round trip of 8.337 us.
#include <gtest/gtest.h>

#include "cc/credit.h"
#include "cc/rccc.h"
#include "tests/support/cc_script.h"
#include "tests/support/golden.h"

namespace pacecar {
namespace {

constexpr Bytes kMtu = 4086;
const FlowEnvironment kFabric{.line_rate = Rate::from_gbps(400),
                              .mtu = kMtu,
                              .overhead = 64,
                              .burst_bytes = kMtu,
                              .base_rtt = Duration::from_ns(8337)};
// 1.5 bandwidth-delay products of payload.
constexpr Bytes kLimit = 615'632;

class CcRccc : public ::testing::Test {
 protected:
  Bytes may_send() { return rccc_.decide(now_).credit; }
  // The wish in units, at the flow's standing.
  uint64_t wish(Bytes backlog, Bytes in_flight, Bytes sent) {
    const auto demand = rccc_.demand(now_, {backlog, in_flight, sent});
    EXPECT_TRUE(demand && demand->is_credit);
    return demand->credit / kCreditUnit;
  }
  void hear(Bytes sent) { rccc_.on_ack({.now = now_, .rtt = {}, .acked = kMtu, .sent = sent}); }
  void grant(uint64_t units) {
    Grant grant;
    grant.is_credit = true;
    grant.credit = units * kCreditUnit;
    rccc_.on_grant(now_, grant);
  }

  RcccController rccc_{kFabric};
  Instant now_ = Instant::from_ns(1'000'000'000);
};

TEST_F(CcRccc, StartsBlindlyAndLosesTheRestAtTheFirstWord) {
  EXPECT_NEAR(static_cast<double>(may_send()), kLimit, 10);
  EXPECT_EQ(rccc_.decide(now_).rate, Rate::from_gbps(400));
  EXPECT_EQ(rccc_.decide(now_).limited_by, LimitedBy::kLine);
  hear(100 * kMtu);
  EXPECT_EQ(may_send(), 100 * kMtu);
  EXPECT_EQ(rccc_.decide(now_).limited_by, LimitedBy::kGrant);
}

TEST_F(CcRccc, ALossIsAWordToo) {
  rccc_.on_loss({.now = now_, .kind = LossKind::kTrimmed, .lost = kMtu, .sent = 7 * kMtu});
  EXPECT_EQ(may_send(), 7 * kMtu);
}

TEST_F(CcRccc, GrantsAddUpOnceEach) {
  hear(1000);
  grant(256);
  EXPECT_EQ(may_send(), 1000 + 256 * kCreditUnit);
  grant(256);
  grant(200);
  EXPECT_EQ(may_send(), 1000 + 256 * kCreditUnit) << "repeated and late ones say nothing new";
  grant(500);
  EXPECT_EQ(may_send(), 1000 + 500 * kCreditUnit);
}

TEST_F(CcRccc, CountsWrap) {
  Bytes sent = 1000;
  uint64_t units = 0;
  for (int i = 0; i < 10'000; ++i) {  // more than twice around
    hear(sent);
    units += 4096;
    grant(units & 0xFFFFFF);
    ASSERT_EQ(may_send(), sent + 4096 * kCreditUnit);
    sent = may_send();
  }
}

TEST_F(CcRccc, GrantsOfTheBlindPhaseAreLostWithTheRest) {
  grant(256);
  EXPECT_NEAR(static_cast<double>(may_send()), kLimit, 10);
  hear(1000);
  EXPECT_EQ(may_send(), 1000U);
  grant(300);
  EXPECT_EQ(may_send(), 1000 + 44 * kCreditUnit);
}

TEST_F(CcRccc, NeverHasMoreThanTheLimit) {
  hear(1000);
  for (uint64_t units = 256; units < 20'000; units += 256) grant(units);
  EXPECT_NEAR(static_cast<double>(may_send()), 1000 + kLimit, 10);
}

TEST_F(CcRccc, WishesForWhatTheBlindCreditWillNotCover) {
  EXPECT_EQ(wish(1'000'000, 0, 0), 6006U) << "1,000,000 - 615,632 bytes";
  EXPECT_EQ(wish(1'000'000, 200'000, 200'000), 6006U) << "sending changes nothing";
  hear(400'000);
  EXPECT_EQ(wish(996'000, 396'000, 400'000), 9375U) << "600,000 are not sent";
  grant(1000);
  EXPECT_EQ(wish(996'000, 396'000, 400'000), 9375U) << "nor does a grant";
  EXPECT_EQ(wish(996'000, 376'000, 400'000), 9688U) << "20,000 are lost";
  EXPECT_EQ(wish(996'000, 396'000, 400'000), 9688U) << "a wish stands";
}

TEST_F(CcRccc, AsksForAPacketWhileBlind) {
  EXPECT_EQ(wish(1000, 0, 0), 64U);
  grant(64);
  EXPECT_EQ(wish(1000, 1000, 1000), 64U) << "once";
  hear(1000);
  EXPECT_EQ(wish(500, 500, 1000), 64U);
  EXPECT_EQ(wish(500, 0, 1000), 64U + 8) << "500 bytes are lost";
}

TEST_F(CcRccc, ALongMessageRaisesItsWishInSteps) {
  hear(kMtu);
  const uint64_t first = wish(1 << 30, 0, kMtu);
  EXPECT_EQ(first, credit_limit(kFabric) / kCreditUnit + 1);
  const uint64_t step = credit_limit(kFabric) / kCreditUnit / 8;
  grant(step - 1);
  EXPECT_EQ(wish(1 << 30, 0, kMtu + (step - 1) * kCreditUnit), first);
  grant(step);
  EXPECT_EQ(wish(1 << 30, 0, kMtu + step * kCreditUnit), first + step);
}

TEST_F(CcRccc, AMessageOnAnIdleFlowStartsBlindly) {
  hear(1000);
  grant(5000);
  wish(0, 0, 1000);  // idle
  EXPECT_NEAR(static_cast<double>(may_send()), 1000 + kLimit, 10);
  EXPECT_EQ(wish(1'000'000, 0, 1000), 5000U + 6006);
  hear(1000);  // about the message before
  EXPECT_GT(may_send(), 1000U);
  hear(1000 + kMtu);
  EXPECT_EQ(may_send(), 1000 + kMtu) << "what was left of the message before is lost as well";
}

TEST_F(CcRccc, ObeysAReceiverThatGrantsRates) {
  rccc_.on_grant(
      now_,
      {.rate = Rate::from_gbps(50), .phase = {}, .validity = Duration::from_ms(1), .epoch = 1});
  const Decision d = rccc_.decide(now_);
  EXPECT_EQ(d.rate, Rate::from_gbps(50));
  EXPECT_EQ(d.credit, ~Bytes{0});
  EXPECT_FALSE(rccc_.demand(now_, {1000, 0, 0}).has_value());
}

TEST(CcRcccTrace, Course) {
  RcccController rccc(kFabric);
  testing::CcScript s(rccc, kMtu);
  s.wait(Duration::from_us(4)).credit(64);
  s.note("the first word ends the blind phase");
  s.wait(Duration::from_us(4)).ack("ack", 1, {});
  for (uint64_t units = 320; units < 1500; units += 256) {
    s.wait(Duration::from_ns(331)).credit(units);
  }
  s.note("late, lost and repeated grants");
  s.credit(576).credit(3000).credit(3000);
  s.note("a trimmed packet and a timeout change nothing here: the wish does");
  s.trim().timeout();
  testing::expect_golden("cc/rccc.txt", s.text());
}

}  // namespace
}  // namespace pacecar
