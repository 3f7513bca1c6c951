#include "cc/credit_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <vector>

#include "cc/credit.h"

namespace pacecar::credit_share_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kPull = 256;  // units: four packets of 4086 bytes

class CcCreditShare : public ::testing::Test {
 protected:
  CcCreditShare() {
    for (uint32_t flow = 0; flow < 8; ++flow) share_.add_flow(now_, flow);
  }
  void request(uint32_t flow, uint64_t units) {
    Demand demand;
    demand.is_credit = true;
    demand.credit = units * kCreditUnit;
    share_.on_demand(now_, flow, demand);
  }
  uint64_t granted(uint32_t flow) { return share_.grant(flow).credit / kCreditUnit; }
  // The flows that get pulls now, in order.
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
  // The flows of the next `count` pulls, each at its deadline.
  std::vector<uint32_t> pulls(size_t count) {
    std::vector<uint32_t> flows;
    while (flows.size() < count) {
      now_ = std::max(now_, share_.next_deadline());
      for (const uint32_t flow : poll()) flows.push_back(flow);
    }
    return flows;
  }
  // Bytes per nanosecond on the wire, over many pulls in a row.
  double long_run_rate() {
    const Instant start = now_;
    const size_t count = 100'000;
    for (size_t i = 0; i < count; ++i) {
      request(0, ((i + 2) * kPull) & 0xFFFFFF);
      pulls(1);
    }
    const double wire = static_cast<double>(count * kPull * kCreditUnit) * 4150 / 4086;
    return wire / static_cast<double>((share_.next_deadline() - start).ns());
  }

  CreditShare share_{{.line_rate = Rate::from_gbps(400),
                      .mtu = 4086,
                      .overhead = 64,
                      .base_rtt = Duration::from_ns(8337),
                      .oversubscription = 2},
                     8};
  Instant now_ = Instant::from_ns(5'000'000);
};

TEST_F(CcCreditShare, FlowsWithoutARequestGetNoCredit) {
  EXPECT_EQ(share_.next_deadline(), Instant::never());
  EXPECT_THAT(poll(), IsEmpty());
  EXPECT_TRUE(share_.grant(3).is_credit);
  EXPECT_EQ(granted(3), 0U);
  share_.on_demand(now_, 3, {.usable = Rate::from_gbps(1), .wanted = 1000});
  EXPECT_EQ(share_.next_deadline(), Instant::never()) << "this demand requests no credit";
}

TEST_F(CcCreditShare, FirstPullLeavesAtOnceAndTheNextIsPaced) {
  request(2, 10'000);
  EXPECT_THAT(poll(), ElementsAre(2));
  EXPECT_EQ(granted(2), kPull);
  // 16,384 bytes of payload are 16,641 on the wire, at 49.5 bytes per nanosecond.
  EXPECT_EQ((share_.next_deadline() - now_).ns(), 336);
  now_ = share_.next_deadline() - Duration::from_ns(1);
  EXPECT_THAT(poll(), IsEmpty());
  now_ = share_.next_deadline();
  EXPECT_THAT(poll(), ElementsAre(2));
}

TEST_F(CcCreditShare, LongRunPullRateIsExact) { EXPECT_NEAR(long_run_rate() / 49.5, 1, 1e-6); }

TEST_F(CcCreditShare, LongRunPullRateIsExactWhenTheCoreCarriesLess) {
  share_.on_counts(now_, {});
  now_ = now_ + Duration::from_us(20);
  share_.on_counts(now_, {.packets = 20, .trimmed = 10, .trimmed_in_core = 10});
  EXPECT_NEAR(long_run_rate() / 49.5, 2.0 / 3, 1e-6);
}

TEST_F(CcCreditShare, CoreTrimsLengthenTheTimeBetweenPulls) {
  request(0, 100'000);
  share_.on_counts(now_, {});
  now_ = now_ + Duration::from_us(20);
  share_.on_counts(now_, {.packets = 50, .trimmed = 50, .trimmed_in_core = 50});
  pulls(1);
  const Instant last = share_.next_deadline();
  pulls(1);
  EXPECT_NEAR(static_cast<double>((share_.next_deadline() - last).ns()), 336 / 0.5, 1);
}

TEST_F(CcCreditShare, FlowsTakeTurns) {
  for (const uint32_t flow : {4U, 1U, 6U}) request(flow, 100'000);
  EXPECT_THAT(pulls(9), ElementsAre(4, 1, 6, 4, 1, 6, 4, 1, 6));
  request(0, 100'000);
  EXPECT_THAT(pulls(5), ElementsAre(4, 1, 6, 0, 4)) << "a newcomer waits for its turn";
}

TEST_F(CcCreditShare, NoFlowGetsMoreThanRequestedWhileOthersWait) {
  request(0, 100);
  request(1, 1000);
  pulls(5);
  EXPECT_EQ(granted(0), 100U);
  EXPECT_EQ(granted(1), 1000U);
}

TEST_F(CcCreditShare, SmallPullsTakeLessTime) {
  request(0, 64);
  poll();
  EXPECT_EQ((share_.next_deadline() - now_).ns(), 84);
}

TEST_F(CcCreditShare, SpareCreditGoesToServedFlowsUpToTheLimit) {
  request(0, 100);
  request(1, 100);
  EXPECT_THAT(pulls(6), ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_EQ(granted(0), 100 + 2 * kPull);
  request(2, 1000);
  EXPECT_THAT(pulls(4), Each(2)) << "a flow with an open request goes first";
  for (int i = 0; share_.next_deadline() != Instant::never() && i < 1000; ++i) {
    now_ = std::max(now_, share_.next_deadline());
    poll();
  }
  EXPECT_EQ(share_.next_deadline(), Instant::never());
  const uint64_t limit = 615'632 / kCreditUnit;
  for (const uint32_t flow : {0U, 1U}) {
    EXPECT_GE(granted(flow), 100 + limit);
    EXPECT_LE(granted(flow), 100 + limit + kPull);
  }
  EXPECT_EQ(granted(5), 0U) << "flow 5 never requested credit";
  request(0, 200);
  now_ = now_ + Duration::from_us(1);
  EXPECT_THAT(poll(), IsEmpty()) << "the flow already has more credit";
}

TEST_F(CcCreditShare, OldAndRepeatedRequestsAreIgnored) {
  request(0, 1000);
  pulls(4);
  request(0, 1000);
  request(0, 500);
  request(1, 100'000);
  EXPECT_THAT(pulls(5), Each(1));
}

TEST_F(CcCreditShare, CreditCountsWrap) {
  uint64_t requested = 0;
  for (int i = 0; i < 500; ++i) {
    requested += 100'000;
    request(0, requested & 0xFFFFFF);
    while (granted(0) < requested) pulls(1);
    ASSERT_EQ(granted(0), requested);
  }
}

TEST_F(CcCreditShare, LatePollCatchesUpOnAtMostFiftyMicroseconds) {
  request(0, 1'000'000);
  poll();
  now_ = now_ + Duration::from_us(10);
  EXPECT_NEAR(static_cast<double>(poll().size()), 10'000 / 336.2, 1.5);
  now_ = now_ + Duration::from_s(10);
  EXPECT_NEAR(static_cast<double>(poll().size()), 50'000 / 336.2, 1.5)
      << "the 10 s are not caught up on";
}

TEST_F(CcCreditShare, UnusedPullTimeIsNotSaved) {
  request(0, 1);
  while (share_.next_deadline() != Instant::never()) {
    now_ = std::max(now_, share_.next_deadline());
    poll();
  }
  now_ = now_ + Duration::from_us(40);
  request(0, 100'000);
  EXPECT_EQ(poll().size(), 1U);
}

TEST_F(CcCreditShare, RemovedFlowLosesItsRequestAndCredit) {
  request(0, 1000);
  request(1, 1000);
  share_.remove_flow(now_, 0);
  EXPECT_THAT(pulls(4), Each(1));
  share_.add_flow(now_, 0);
  EXPECT_EQ(granted(0), 0U);
  request(0, 100);
  EXPECT_THAT(pulls(1), ElementsAre(0));
  share_.remove_flow(now_, 0);
  share_.remove_flow(now_, 1);
  EXPECT_EQ(share_.next_deadline(), Instant::never())
      << "flow 0 had all it requested when it was removed";
}

TEST_F(CcCreditShare, RequestForOneMoreUnitGetsAPull) {
  request(0, 100);
  EXPECT_THAT(poll(), ElementsAre(0));
  request(0, 101);
  EXPECT_THAT(pulls(1), ElementsAre(0));
  EXPECT_EQ(granted(0), 101U);
}

}  // namespace
}  // namespace pacecar::credit_share_test
