// The sender's half of rccc, in figures of a 400 Gb/s fabric with a round trip of 8.337 us.
#include "cc/rccc.h"

#include <gtest/gtest.h>

#include "cc/credit.h"
#include "tests/support/cc_script.h"
#include "tests/support/golden.h"

namespace pacecar::rccc_test {
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
  // The requested credit in units, for this state of the flow.
  uint64_t request(Bytes backlog, Bytes in_flight, Bytes sent, uint32_t sharing = 1) {
    const auto demand = rccc_.demand(
        now_, {.backlog = backlog, .in_flight = in_flight, .sent = sent, .sharing = sharing});
    EXPECT_TRUE(demand && demand->is_credit);
    return demand->credit / kCreditUnit;
  }
  void acknowledge(Bytes sent) { rccc_.on_ack(now_, {.rtt = {}, .acked = kMtu, .sent = sent}); }
  void grant(uint64_t units) {
    Grant grant;
    grant.is_credit = true;
    grant.credit = units * kCreditUnit;
    rccc_.on_grant(now_, grant);
  }

  RcccController rccc_{kFabric};
  Instant now_ = Instant::from_ns(1'000'000'000);
};

TEST_F(CcRccc, FlowStartsBlindlyUntilTheFirstFeedback) {
  EXPECT_NEAR(static_cast<double>(may_send()), kLimit, 10);
  EXPECT_EQ(rccc_.decide(now_).rate, Rate::from_gbps(400));
  EXPECT_EQ(rccc_.decide(now_).limited_by, LimitedBy::kLine);
  acknowledge(100 * kMtu);
  EXPECT_EQ(may_send(), 100 * kMtu);
  EXPECT_EQ(rccc_.decide(now_).limited_by, LimitedBy::kGrant);
}

TEST_F(CcRccc, GrantOfOneUnitCounts) {
  acknowledge(1000);
  grant(1);
  EXPECT_EQ(may_send(), 1000 + kCreditUnit);
}

TEST(CcCredit, CreditLimitIsAtLeastAFewPackets) {
  const FlowEnvironment near{
      .line_rate = Rate::from_gbps(1), .mtu = kMtu, .base_rtt = Duration::from_us(1)};
  EXPECT_EQ(credit_limit(near), kCredit.limit_min_packets * kMtu);
}

TEST_F(CcRccc, LossEndsTheBlindPhase) {
  rccc_.on_loss(now_, {.kind = LossKind::kTrimmed, .lost = kMtu, .sent = 7 * kMtu});
  EXPECT_EQ(may_send(), 7 * kMtu);
}

TEST_F(CcRccc, RepeatedAndLateGrantsAreIgnored) {
  acknowledge(1000);
  grant(256);
  EXPECT_EQ(may_send(), 1000 + 256 * kCreditUnit);
  grant(256);
  grant(200);
  EXPECT_EQ(may_send(), 1000 + 256 * kCreditUnit) << "repeated and late grants are ignored";
  grant(500);
  EXPECT_EQ(may_send(), 1000 + 500 * kCreditUnit);
}

TEST_F(CcRccc, CreditCountsWrap) {
  Bytes sent = 1000;
  uint64_t units = 0;
  for (int i = 0; i < 10'000; ++i) {  // wraps more than twice
    acknowledge(sent);
    units += 4096;
    grant(units & 0xFFFFFF);
    ASSERT_EQ(may_send(), sent + 4096 * kCreditUnit);
    sent = may_send();
  }
}

TEST_F(CcRccc, GrantEndsTheBlindPhase) {
  grant(256);
  EXPECT_NEAR(static_cast<double>(may_send()), kLimit, 10)
      << "the flow stays blind, as nothing was sent";
  request(1'000'000, 10 * kMtu, 10 * kMtu);
  grant(300);
  EXPECT_EQ(may_send(), 10 * kMtu + 44 * kCreditUnit)
      << "the blind credit is lost, the granted credit is not";
}

TEST_F(CcRccc, CreditNeverExceedsTheLimit) {
  acknowledge(1000);
  for (uint64_t units = 256; units < 20'000; units += 256) grant(units);
  EXPECT_NEAR(static_cast<double>(may_send()), 1000 + kLimit, 10);
}

TEST_F(CcRccc, BlindFlowRequestsCreditForWhatItSends) {
  EXPECT_EQ(request(1'000'000, kMtu, kMtu), 64U);
  EXPECT_EQ(request(1'000'000, 200'000, 200'000), 3125U);
  EXPECT_EQ(request(300'000, 250'000, 250'000), 3125U)
      << "50,000 bytes have credit; a request is not lowered";
}

TEST_F(CcRccc, FlowRequestsCreditForAllUnsentBytesAfterwards) {
  acknowledge(400'000);
  EXPECT_EQ(request(996'000, 396'000, 400'000), 9375U) << "600,000 bytes are not sent";
  grant(1000);
  EXPECT_EQ(request(996'000, 396'000 + kMtu, 400'000 + kMtu), 9375U)
      << "the request includes the granted credit";
  EXPECT_EQ(request(1'996'000, 396'000 + kMtu, 400'000 + kMtu), 9375U)
      << "a request is raised only after sending";
}

TEST_F(CcRccc, BytesSentBeyondTheCreditAreRequested) {
  acknowledge(100'000);
  grant(256);  // 16,384 bytes: the fifth packet begins within them
  EXPECT_EQ(request(kMtu, 0, 100'000 + 5 * kMtu), 256U + 128)
      << "4,046 bytes beyond the credit, and an unsent packet";
}

TEST_F(CcRccc, BlindFlowRequestsOnePacketOnce) {
  EXPECT_EQ(request(kMtu, kMtu, kMtu), 0U) << "all bytes are in flight";
  EXPECT_EQ(request(kMtu + 1000, 1000, 1000), 64U);
  grant(64);
  EXPECT_EQ(request(kMtu + 1000, kMtu + 1000, kMtu + 1000), 64U) << "the packet is requested once";
}

TEST_F(CcRccc, FlowsThatShareALinkRequestAPartEach) {
  acknowledge(100'000);
  EXPECT_EQ(request(512'000, 0, 100'000 + kMtu, 8), (512'000U + kMtu) / 8 / kCreditUnit + 1);
}

// 512 of 4,096 bytes are granted. They do not cover the packet, and the flow raises its request
// only after a long wait.
TEST_F(CcRccc, TooSmallRequestIsRaisedAfterAWait) {
  acknowledge(100'000);
  const uint64_t first = request(4096, 0, 100'001, 8);
  EXPECT_EQ(first, 8U);
  grant(first);
  for (int half = 0; half < 2; ++half) {
    EXPECT_EQ(request(4096, 0, 100'001, 8), first);
    now_ = now_ + kCredit.ask_again / 2;
  }
  EXPECT_EQ(request(4096, 0, 100'001, 8), first + 7);
}

TEST_F(CcRccc, TimeoutWithoutCreditRaisesTheRequest) {
  acknowledge(100'000);
  EXPECT_EQ(request(kMtu, kMtu, 100'000), 0U);
  const Loss missing{.kind = LossKind::kMissing, .lost = kMtu, .in_flight = 0, .sent = 100'000};
  rccc_.on_loss(now_, missing);
  EXPECT_EQ(request(kMtu, 0, 100'000), 64U);
  grant(100);
  rccc_.on_loss(now_, missing);
  EXPECT_EQ(request(3 * kMtu, 0, 100'000), 64U)
      << "a flow with credit raises its request when it sends";
}

TEST_F(CcRccc, LongMessageRaisesItsRequestInSteps) {
  const uint64_t limit = credit_limit(kFabric) / kCreditUnit;
  acknowledge(kMtu);
  const uint64_t first = request(1 << 30, 0, kMtu + 1);
  EXPECT_EQ(first, limit + 1);
  // A step is an eighth of the credit that is still to be granted.
  const uint64_t granted = first / 9;
  grant(granted - 1);
  EXPECT_EQ(request(1 << 30, 0, kMtu + (granted - 1) * kCreditUnit), first);
  grant(granted + 1);
  EXPECT_EQ(request(1 << 30, 0, kMtu + (granted + 1) * kCreditUnit), first + granted + 1);
}

TEST_F(CcRccc, MessageOnAnIdleFlowStartsBlindly) {
  acknowledge(1000);
  grant(5000);
  request(0, 0, 1000);  // idle
  EXPECT_NEAR(static_cast<double>(may_send()), 1000 + kLimit, 10);
  EXPECT_EQ(request(1'000'000, kMtu, 1000 + kMtu), 5000U + 64);
  acknowledge(1000);  // acknowledges the message before
  EXPECT_GT(may_send(), 1000U);
  acknowledge(1000 + kMtu);
  EXPECT_EQ(may_send(), 1000 + kMtu) << "the unused credit of the message before is lost as well";
}

TEST_F(CcRccc, GrantsOfRatesAreObeyed) {
  rccc_.on_grant(
      now_,
      {.rate = Rate::from_gbps(50), .phase = {}, .validity = Duration::from_ms(1), .epoch = 1});
  const FlowLimits d = rccc_.decide(now_);
  EXPECT_EQ(d.rate, Rate::from_gbps(50));
  EXPECT_EQ(d.credit, ~Bytes{0});
  EXPECT_FALSE(rccc_.demand(now_, {.backlog = 1000}).has_value());
}

TEST(CcRcccTrace, Course) {
  RcccController rccc(kFabric);
  test::CcScript s(rccc, kMtu);
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
  test::expect_golden("cc/rccc.txt", s.text());
}

}  // namespace
}  // namespace pacecar::rccc_test
