// The sender's half of sird, in figures of a 400 Gb/s fabric with a round trip of 8.337 us: a
// bandwidth-delay product is 410,421 bytes of payload, 100.4 packets.
#include "cc/sird.h"

#include <gtest/gtest.h>

#include "tests/support/cc_script.h"
#include "tests/support/golden.h"

namespace pacecar::sird_test {
namespace {

constexpr Bytes kMtu = 4086;
constexpr Bytes kBdp = 410'421;
const FlowEnvironment kFabric{.line_rate = Rate::from_gbps(400),
                              .mtu = kMtu,
                              .overhead = 64,
                              .burst_bytes = kMtu,
                              .base_rtt = Duration::from_ns(8337)};

Grant credit(uint64_t units) {
  Grant grant;
  grant.is_credit = true;
  grant.credit = units * kCreditUnit;
  return grant;
}

class CcSird : public ::testing::Test {
 protected:
  // Where the flow is in its data; the numbers of its demand.
  struct State {
    Bytes backlog = 0;
    Bytes acked = 0;
    Bytes in_flight = 0;
    Bytes sent = 0;
    uint32_t sharing = 1;
  };
  Demand ask(SirdController& flow, const State& s) {
    return *flow.demand(now_, {.backlog = s.backlog,
                               .acked = s.acked,
                               .in_flight = s.in_flight,
                               .sent = s.sent,
                               .sharing = s.sharing});
  }
  uint64_t wish(const State& s) { return ask(sird_, s).credit / kCreditUnit; }
  bool unscheduled(const State& s) { return (ask(sird_, s).epoch & kSirdUnscheduled) != 0; }
  int steps(SirdController& flow, const State& s) { return ask(flow, s).epoch & ~kSirdUnscheduled; }
  void grant(uint64_t units) { sird_.on_grant(now_, credit(units)); }
  Bytes may_send() { return sird_.decide(now_).credit; }

  Bytes accumulated_ = 0;
  SirdController sird_{kFabric, accumulated_};
  Instant now_ = Instant::from_ns(1'000'000'000);
};

TEST_F(CcSird, LongMessageWaitsForCredit) {
  EXPECT_EQ(wish({.backlog = 1'000'000}), 15'625U);
  EXPECT_FALSE(unscheduled({.backlog = 1'000'000}));
  EXPECT_EQ(may_send(), 0U);
  EXPECT_EQ(sird_.decide(now_).limited_by, LimitedBy::kGrant);
  EXPECT_EQ(sird_.decide(now_).rate, Rate::from_gbps(400));
  grant(128);
  EXPECT_EQ(may_send(), 2 * kMtu) << "8192 bytes are two packets";
}

TEST_F(CcSird, MessageUpToTheThresholdIsSentAtOnce) {
  EXPECT_TRUE(unscheduled({.backlog = kBdp}));
  EXPECT_GE(may_send(), kBdp);
  EXPECT_LT(may_send(), kBdp + kCreditUnit);
  EXPECT_EQ(sird_.decide(now_).limited_by, LimitedBy::kLine);
  SirdController other{kFabric, accumulated_};
  EXPECT_EQ(ask(other, {.backlog = kBdp + 1}).epoch & kSirdUnscheduled, 0);
  EXPECT_EQ(other.decide(now_).credit, 0U);
}

TEST_F(CcSird, MessageOnABusyFlowNeedsCredit) {
  wish({.backlog = 1'000'000});
  EXPECT_EQ(wish({.backlog = 1'010'000}), 15'782U);
  EXPECT_EQ(may_send(), 0U);
  SirdController other{kFabric, accumulated_};
  ask(other, {.backlog = 100'000});
  EXPECT_EQ(
      ask(other, {.backlog = 110'000, .in_flight = 4096, .sent = 4096}).epoch & kSirdUnscheduled, 0)
      << "the flow was not idle";
  EXPECT_LT(other.decide(now_).credit, 100'000 + kCreditUnit);
}

TEST_F(CcSird, CreditForPartOfAPacketIsKept) {
  wish({.backlog = 1'000'000});
  grant(63);
  EXPECT_EQ(may_send(), 0U);
  grant(64);
  EXPECT_EQ(may_send(), kMtu);
  const State end{.backlog = 1000, .acked = 999'000, .sent = 999'000};
  wish(end);
  grant(15'625);
  EXPECT_EQ(may_send(), 1'000'000U) << "all that is left may be less than a packet";
}

TEST_F(CcSird, RepeatedAndLateGrantsAreIgnored) {
  wish({.backlog = 1'000'000});
  grant(256);
  grant(128);
  grant(256);
  EXPECT_EQ(may_send(), 4 * kMtu);
}

TEST_F(CcSird, RetransmissionsNeedNoNewCredit) {
  wish({.backlog = 1'000'000});
  grant(256);
  wish({.backlog = 1'000'000, .in_flight = 4 * kMtu, .sent = 4 * kMtu});
  EXPECT_EQ(may_send(), 4 * kMtu);
  // Two arrived, and two were lost.
  EXPECT_EQ(wish({.backlog = 1'000'000 - 2 * kMtu, .acked = 2 * kMtu, .sent = 4 * kMtu}), 15'625U)
      << "the wish is the same offset";
  EXPECT_EQ(may_send(), 6 * kMtu);
}

TEST_F(CcSird, DroppedBytesDoNotLowerTheWish) {
  wish({.backlog = 1'000'000});
  wish({});  // its queue pair has ended
  EXPECT_EQ(wish({.backlog = 1'000'000}), 31'250U);
  grant(15'625 + 64);
  EXPECT_EQ(may_send(), kMtu);
}

TEST_F(CcSird, LongWishIsAnnouncedInParts) {
  constexpr uint64_t kMost = (Bytes{1} << 28) / kCreditUnit;
  const State s{.backlog = Bytes{1} << 40};
  EXPECT_EQ(wish(s), kMost);
  grant(kMost / 2);
  EXPECT_EQ(wish(s), kMost) << "half is not granted yet";
  grant(kMost / 2 + 1);
  EXPECT_EQ(wish(s), kMost + kMost / 2 + 1);
}

TEST_F(CcSird, CreditCountsWrap) {
  uint64_t units = 0;
  State s{.backlog = Bytes{1} << 40};
  for (int i = 0; i < 1000; ++i) {  // wraps about four times
    wish(s);
    units += 64 * 1024;
    grant(units & 0xFFFFFF);
    const Bytes covered = units * kCreditUnit / kMtu * kMtu;
    ASSERT_EQ(may_send(), covered);
    s = {.backlog = (Bytes{1} << 40) - covered, .acked = covered, .sent = covered};
  }
}

// --- the two buckets ---

TEST_F(CcSird, BucketStartsAtTheBandwidthDelayProduct) {
  EXPECT_EQ(steps(sird_, {.backlog = 1'000'000}), 64);
}

// A bucket's worth in which all bytes are marked: the average share becomes 0.08, and the next cut
// takes half of that.
TEST_F(CcSird, BucketShrinksByTheAverageShareOfMarks) {
  SirdBucket bucket(kFabric);
  bucket.on_bytes(kBdp, kBdp);
  EXPECT_NEAR(bucket.bytes(), kBdp * (1 - 0.04), 2);
  bucket.on_bytes(kBdp / 2, kBdp / 2);
  EXPECT_NEAR(bucket.bytes(), kBdp * 0.96, 2) << "less than 1.5 buckets' worth after the last cut";
  bucket.on_bytes(kBdp, kBdp);
  EXPECT_NEAR(bucket.bytes(), kBdp * 0.96 * (1 - (0.08 + 0.08 * 0.92) / 2), 2);
}

TEST_F(CcSird, BucketGrowsByAPacketForEachBucketOfUnmarkedBytes) {
  SirdBucket bucket(kFabric);
  for (int i = 0; i < 100; ++i) bucket.on_bytes(kBdp, kBdp);
  EXPECT_EQ(bucket.bytes(), kMtu) << "not less than a packet";
  bucket.on_bytes(kMtu, 0);
  EXPECT_NEAR(bucket.bytes(), 2 * kMtu, 1e-6);
  bucket.on_bytes(2 * kMtu, 0);
  EXPECT_NEAR(bucket.bytes(), 3 * kMtu, 1e-6);
  for (int i = 0; i < 10'000; ++i) bucket.on_bytes(kBdp, 0);
  EXPECT_NEAR(bucket.bytes(), kBdp, 1) << "not more than the bandwidth-delay product";
}

TEST_F(CcSird, MarksOfTheNetworkShrinkTheBucket) {
  State s{.backlog = Bytes{1} << 30};
  for (int i = 0; i < 10; ++i) {
    sird_.on_ack(now_, {.acked = kBdp, .marked = kBdp});
    s.acked += kBdp;
  }
  EXPECT_LT(steps(sird_, s), 48);
}

// Two flows of one sender have more than half a bandwidth-delay product of unused credit together.
TEST_F(CcSird, CreditThatAccumulatesAtTheSenderShrinksTheBucket) {
  SirdController other{kFabric, accumulated_};
  ask(other, {.backlog = 1'000'000});
  other.on_grant(now_, credit(2000));  // 128,000 bytes
  State s{.backlog = Bytes{1} << 26};
  const auto send = [&](Bytes unused, uint32_t sharing) {
    ask(sird_, s);
    grant(credit_units(s.sent + kBdp + unused) & 0xFFFFFF);
    s.sent += kBdp;
    s.acked += kBdp;
    s.backlog -= kBdp;
    s.sharing = sharing;
    return steps(sird_, s);
  };
  for (int i = 0; i < 10; ++i) EXPECT_EQ(send(77'000, 2), 64) << "205,000 bytes are unused";
  for (int i = 0; i < 10; ++i) EXPECT_EQ(send(79'000, 1), 64) << "the sender serves one flow";
  int after = 64;
  for (int i = 0; i < 10; ++i) after = send(79'000, 2);
  EXPECT_LT(after, 48) << "207,000 bytes are more than half";
}

TEST_F(CcSird, UnusedCreditEndsWithItsFlow) {
  {
    SirdController other{kFabric, accumulated_};
    ask(other, {.backlog = 1'000'000});
    other.on_grant(now_, credit(2000));
    EXPECT_EQ(accumulated_, 128'000U);
    ask(other, {.backlog = 1'000'000, .in_flight = 100'000, .sent = 100'000});
    EXPECT_EQ(accumulated_, 28'000U);
  }
  EXPECT_EQ(accumulated_, 0U);
}

TEST_F(CcSird, FlowsOfOneSenderShareTheCount) {
  SirdSenders senders(kFabric, {}, 2);
  auto& first = dynamic_cast<SirdController&>(senders.add_flow(now_, 0));
  auto& second = dynamic_cast<SirdController&>(senders.add_flow(now_, 1));
  ask(first, {.backlog = 10'000'000});
  first.on_grant(now_, credit(4000));  // 256,000 bytes
  State s{.backlog = Bytes{1} << 26, .sharing = 2};
  for (int i = 0; i < 10; ++i) {
    ask(second, s);
    s.sent += kBdp;
    s.acked += kBdp;
    s.backlog -= kBdp;
  }
  EXPECT_LT(steps(second, s), 48);
  senders.remove_flow(now_, 0);
  for (int i = 0; i < 200; ++i) {
    s.sent += kBdp;
    s.acked += kBdp;
    s.backlog += kBdp;
    ask(second, s);
  }
  EXPECT_EQ(steps(second, s), 64);
}

TEST_F(CcSird, GrantsOfRatesAreObeyed) {
  sird_.on_grant(now_, {.rate = Rate::from_gbps(50), .validity = Duration::from_ms(1), .epoch = 1});
  EXPECT_EQ(sird_.decide(now_).rate, Rate::from_gbps(50));
  EXPECT_EQ(sird_.decide(now_).credit, kNoCredit);
  EXPECT_FALSE(sird_.demand(now_, {.backlog = 1000}).has_value());
}

TEST(CcSirdTrace, Course) {
  Bytes accumulated = 0;
  SirdController sird(kFabric, accumulated);
  test::CcScript s(sird, kMtu);
  s.note("a brief message");
  s.demand({.backlog = 20 * kMtu});
  s.demand({.acked = 20 * kMtu, .sent = 20 * kMtu});
  s.note("a long one");
  const Bytes before = 20 * kMtu;
  s.demand({.backlog = 1'000'000, .acked = before, .sent = before});
  for (uint64_t units = 1406; units < 2300; units += 128) {
    s.wait(Duration::from_ns(168)).credit(units);
  }
  s.note("four packets are sent, of which two are lost");
  s.demand(
      {.backlog = 1'000'000 - 2 * kMtu, .acked = before + 2 * kMtu, .sent = before + 4 * kMtu});
  s.note("a receiver that grants rates");
  s.grant(Rate::from_gbps(100), {}, Duration::from_us(50), 1);
  test::expect_golden("cc/sird.txt", s.text());
}

}  // namespace
}  // namespace pacecar::sird_test
