// The receiver's half of sird, in figures of a 400 Gb/s fabric with a round trip of 8.337 us: a
// bandwidth-delay product is 410,421 bytes of payload, B is 615,632. A turn is two packets.
#include "cc/sird_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace pacecar::sird_share_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Bytes kMtu = 4086;
constexpr Bytes kPull = 2 * kMtu;
constexpr Bytes kBdp = 410'421;
constexpr Bytes kMost = 615'632;
constexpr uint16_t kWhole = 64;

class CcSirdShare : public ::testing::Test {
 protected:
  CcSirdShare() {
    for (uint32_t flow = 0; flow < 8; ++flow) {
      share_.add_flow(now_, flow);
      share_.on_posted(now_, flow, Bytes{1} << 30);
    }
  }
  void request(uint32_t flow, uint64_t units, uint16_t steps = kWhole, bool unscheduled = false) {
    Demand demand;
    demand.is_credit = true;
    demand.credit = units * kCreditUnit;
    demand.epoch = static_cast<uint16_t>(steps | (unscheduled ? kSirdUnscheduled : 0));
    share_.on_demand(now_, flow, demand);
  }
  void arrive(uint32_t flow, Bytes bytes) { share_.on_arrival(now_, flow, bytes, {}); }
  Bytes granted(uint32_t flow) { return share_.grant(flow).credit; }
  // The flows that are granted a turn now, in order.
  std::vector<uint32_t> poll() {
    std::vector<uint32_t> flows;
    std::array<GrantUpdate, 3> updates;
    size_t count = 0;
    do {
      count = share_.poll_grants(now_, updates);
      for (size_t i = 0; i < count; ++i) {
        EXPECT_TRUE(updates[i].grant.is_credit);
        flows.push_back(updates[i].flow);
      }
    } while (count == updates.size());
    return flows;
  }
  // All that can be granted before anything arrives.
  std::vector<uint32_t> pull_all() {
    std::vector<uint32_t> flows;
    for (int i = 0; i < 300; ++i) {
      now_ = now_ + Duration::from_ns(200);  // a turn takes 168 ns
      for (const uint32_t flow : poll()) flows.push_back(flow);
    }
    return flows;
  }

  SirdShare share_{{.line_rate = Rate::from_gbps(400),
                    .mtu = kMtu,
                    .overhead = 64,
                    .base_rtt = Duration::from_ns(8337)},
                   8};
  Instant now_ = Instant::from_ns(5'000'000);
};

TEST_F(CcSirdShare, FlowsWithoutARequestGetNoCredit) {
  EXPECT_EQ(share_.next_deadline(), Instant::never());
  EXPECT_THAT(poll(), IsEmpty());
  EXPECT_TRUE(share_.grant(3).is_credit);
  EXPECT_EQ(granted(3), 0U);
  share_.on_demand(now_, 3, {.usable = Rate::from_gbps(1), .wanted = 1000});
  EXPECT_EQ(share_.next_deadline(), Instant::never()) << "this demand requests no credit";
}

TEST_F(CcSirdShare, TurnsArePacedBelowLineRate) {
  request(2, 10'000);
  EXPECT_THAT(poll(), ElementsAre(2));
  EXPECT_EQ(granted(2), kPull + 20) << "the word counts in units of 64 bytes, rounded up";
  // 8,300 bytes on the wire, at 49.5 bytes per nanosecond.
  EXPECT_EQ((share_.next_deadline() - now_).ns(), 167);
  now_ = share_.next_deadline() - Duration::from_ns(1);
  EXPECT_THAT(poll(), IsEmpty());
  now_ = share_.next_deadline();
  EXPECT_THAT(poll(), ElementsAre(2));
}

TEST_F(CcSirdShare, FlowsTakeTurns) {
  for (const uint32_t flow : {4U, 1U, 6U}) request(flow, 100'000);
  now_ = now_ + Duration::from_us(1);
  EXPECT_THAT(poll(), ElementsAre(4, 1, 6, 4, 1, 6));
}

TEST_F(CcSirdShare, NoFlowGetsMoreThanRequested) {
  request(0, 100);
  request(1, 200);
  pull_all();
  EXPECT_EQ(granted(0), 100 * kCreditUnit);
  EXPECT_EQ(granted(1), 200 * kCreditUnit);
  request(0, 100);
  request(0, 50);
  EXPECT_THAT(pull_all(), IsEmpty()) << "repeated and late requests ask for nothing";
}

TEST_F(CcSirdShare, OneFlowHasItsBucketOutstanding) {
  request(0, 1'000'000);
  pull_all();
  EXPECT_GE(granted(0), kBdp);
  EXPECT_LT(granted(0), kBdp + kPull + kCreditUnit);
  arrive(0, 10 * kPull);
  EXPECT_EQ(pull_all().size(), 10U) << "as much as has arrived";
}

TEST_F(CcSirdShare, AllFlowsTogetherHaveBOutstanding) {
  for (uint32_t flow = 0; flow < 8; ++flow) request(flow, 1'000'000);
  pull_all();
  EXPECT_GE(share_.outstanding(), kMost);
  EXPECT_LT(share_.outstanding(), kMost + kPull);
  arrive(3, 4 * kPull);
  EXPECT_EQ(pull_all().size(), 4U);
}

TEST_F(CcSirdShare, SmallBucketLeavesCreditToOthers) {
  request(0, 1'000'000, 16);
  request(1, 1'000'000);
  pull_all();
  EXPECT_NEAR(static_cast<double>(granted(0)), kBdp / 4.0, kPull);
  EXPECT_NEAR(static_cast<double>(granted(1)), kBdp, kPull);
  request(0, 1'000'000, 32);
  pull_all();
  EXPECT_NEAR(static_cast<double>(granted(0)), kMost - kBdp, kPull)
      << "a larger bucket counts at once, without a new wish; here B is the limit";
}

TEST_F(CcSirdShare, BucketIsAtLeastAPacketAndAtMostTheProduct) {
  request(0, 1'000'000, 0);
  request(1, 1'000'000, 0x7FFF);
  pull_all();
  EXPECT_EQ(granted(0), kPull + 20);
  EXPECT_NEAR(static_cast<double>(granted(1)), kBdp, kPull);
  arrive(0, kPull);
  EXPECT_THAT(pull_all(), ElementsAre(0));
}

TEST_F(CcSirdShare, UnscheduledBytesNeedNoTurnAndAreOutstanding) {
  request(0, 5000, kWhole, /*unscheduled=*/true);
  EXPECT_EQ(granted(0), 5000 * kCreditUnit);
  EXPECT_EQ(share_.outstanding(), 5000 * kCreditUnit);
  request(1, 1'000'000);
  pull_all();
  EXPECT_NEAR(static_cast<double>(granted(1)), kMost - 5000 * kCreditUnit, kPull);
  // The longest such message, in whole units; one unit more may not be.
  request(2, credit_units(kBdp), kWhole, /*unscheduled=*/true);
  EXPECT_EQ(granted(2), credit_units(kBdp) * kCreditUnit);
  request(3, credit_units(kBdp) + 1, kWhole, /*unscheduled=*/true);
  EXPECT_EQ(granted(3), 0U);
}

TEST_F(CcSirdShare, TimeWithoutAnyToGrantIsNotCaughtUpOn) {
  for (uint32_t flow = 0; flow < 8; ++flow) request(flow, 1'000'000);
  pull_all();
  now_ = now_ + Duration::from_us(40);
  arrive(3, kMost);
  EXPECT_EQ(poll().size(), 1U);
  share_.remove_flow(now_, 0);
  pull_all();
  for (uint32_t flow = 1; flow < 8; ++flow) share_.remove_flow(now_, flow);
  now_ = now_ + Duration::from_us(40);
  share_.add_flow(now_, 0);
  request(0, 100'000);
  EXPECT_EQ(poll().size(), 1U) << "nobody had asked";
}

TEST_F(CcSirdShare, CreditThatBringsNothingIsTakenBack) {
  for (uint32_t flow = 0; flow < 8; ++flow) request(flow, 1'000'000);
  pull_all();
  EXPECT_GT(share_.next_deadline(), now_ + kCredit.ask_again / 2);
  now_ = share_.next_deadline() - Duration::from_ns(1);
  EXPECT_THAT(poll(), IsEmpty());
  now_ = share_.next_deadline();
  EXPECT_EQ(poll().size(), 1U);
  EXPECT_EQ(share_.outstanding(), kPull);
}

// 3,000 of 6,400 bytes never come: the message was cancelled.
TEST_F(CcSirdShare, NothingIsOutstandingWhenAllReceivesAreDone) {
  request(0, 100);
  pull_all();
  arrive(0, 3400);
  EXPECT_EQ(share_.outstanding(), 3000U);
  share_.on_finished(now_, 0, (Bytes{1} << 30) - 1);
  EXPECT_EQ(share_.outstanding(), 3000U) << "a receive is still posted";
  share_.on_finished(now_, 0, 1);
  EXPECT_EQ(share_.outstanding(), 0U);
  EXPECT_EQ(share_.next_deadline(), Instant::never());
  request(0, 200);
  pull_all();
  EXPECT_EQ(share_.outstanding(), 100 * kCreditUnit);
}

TEST_F(CcSirdShare, RemovedFlowLosesItsRequestAndCredit) {
  request(0, 1'000'000);
  request(1, 1'000'000);
  pull_all();
  const Bytes others = granted(1);
  share_.remove_flow(now_, 0);
  EXPECT_NEAR(static_cast<double>(share_.outstanding()), static_cast<double>(others), kCreditUnit);
  EXPECT_THAT(pull_all(), Each(1));
  share_.add_flow(now_, 0);
  EXPECT_EQ(granted(0), 0U);
}

TEST_F(CcSirdShare, CreditCountsWrap) {
  uint64_t requested = 0;
  for (int i = 0; i < 500; ++i) {
    requested += 100'000;
    request(0, requested & 0xFFFFFF);
    while (granted(0) < requested * kCreditUnit) {
      if (pull_all().empty()) FAIL() << "no credit";
      arrive(0, share_.outstanding());
    }
    ASSERT_EQ(granted(0), requested * kCreditUnit);
  }
}

}  // namespace
}  // namespace pacecar::sird_share_test
