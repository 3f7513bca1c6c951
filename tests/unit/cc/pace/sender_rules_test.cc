// PaceSenders: the flows of one NIC share its link by agreement.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "cc/pace/sender.h"

namespace pacecar::sender_rules_test {
namespace {

constexpr Duration kValidity = Duration::from_us(50);
constexpr FlowEnvironment kFabric{.line_rate = Rate::from_gbps(400),
                                  .mtu = 4096,
                                  .overhead = 64,
                                  .burst_bytes = 4096,
                                  .base_rtt = Duration::from_us(8)};

class CcPaceSenders : public ::testing::Test {
 protected:
  CcPaceSenders() {
    for (uint32_t flow = 0; flow < 3; ++flow) {
      flows_[flow] = &senders_.add_flow(now_, flow);
      flows_[flow]->on_grant(now_, {.rate = Rate::from_gbps(400), .validity = Duration::from_s(9)});
    }
  }
  void want(uint32_t flow, Bytes backlog) {
    flows_[flow]->demand(now_, {.backlog = backlog});
    flows_[flow]->decide(now_);
  }
  double gbps(uint32_t flow) { return flows_[flow]->decide(now_).rate.gbps(); }
  std::vector<uint32_t> changed() {
    std::array<uint32_t, 8> flows;
    const size_t count = senders_.poll_changed(now_, flows);
    return {flows.begin(), flows.begin() + static_cast<std::ptrdiff_t>(count)};
  }

  static PaceConstants clear_core() {
    PaceConstants constants;
    constants.core_start = 1;
    return constants;
  }
  Instant now_ = Instant::from_ns(1'000'000'000);
  PaceSenders senders_{kFabric, clear_core(), 4};
  std::array<Controller*, 3> flows_{};
};

TEST_F(CcPaceSenders, UnansweredDemandIsRepeatedSoon) {
  const FlowStats stats{.backlog = 1 << 30};
  now_ = now_ + Duration::from_us(1);  // after the grant
  const auto demand = flows_[0]->demand(now_, stats);
  ASSERT_TRUE(demand);
  const uint16_t epoch = demand->epoch;
  now_ = now_ + Duration::from_us(20);
  EXPECT_NE(flows_[0]->demand(now_, stats)->epoch, epoch);
  // After an answer the demand waits until the validity of the grant is nearly over.
  flows_[0]->on_grant(
      now_,
      {.rate = Rate::from_gbps(400), .aligned = true, .validity = Duration::from_s(9), .epoch = 1});
  const uint16_t again = flows_[0]->demand(now_, stats)->epoch;
  now_ = now_ + Duration::from_us(20);
  EXPECT_EQ(flows_[0]->demand(now_, stats)->epoch, again);
}

// While the rate is not cut yet, the window is all that bounds the queue at a slow link: a
// millisecond's worth, and four packets.
TEST(CcPaceSenderWindow, OnASlowLinkIsAMillisecondsWorth) {
  const FlowEnvironment sockets{.line_rate = Rate::from_gbps(10),
                                .mtu = 1408,
                                .overhead = 100,
                                .burst_bytes = 60'000,
                                .base_rtt = Duration::from_us(100)};
  PaceSenders senders(sockets, {}, 1);
  const Instant now = Instant::from_ns(1'000'000'000);
  Controller& flow = senders.add_flow(now, 0);
  const Rate slow = Rate::from_bps(250'000'000);
  flow.on_grant(now, {.rate = slow, .validity = Duration::from_s(9)});
  flow.demand(now, {.backlog = 1 << 30});
  EXPECT_EQ(flow.decide(now).rate, slow);
  EXPECT_LE(flow.decide(now).window, slow.bytes_in(Duration::from_ms(1)) + 4 * sockets.mtu);
}

// An unknown rate is found by doubling: each acknowledged byte makes room for two.
TEST(CcPaceSenderWindow, OnALinkOfUnknownRateGrowsByWhatIsAcknowledged) {
  FlowEnvironment unknown = kFabric;
  unknown.first_rate = Rate::from_gbps(10);
  const Instant now = Instant::from_ns(1'000'000'000);
  const auto window = [&](const FlowEnvironment& environment, Bytes acked) {
    PaceSenders senders(environment, {}, 1);
    Controller& flow = senders.add_flow(now, 0);
    flow.on_grant(now, {.rate = Rate::from_gbps(400), .validity = Duration::from_s(9)});
    flow.demand(now, {.backlog = 1 << 30, .acked = acked, .sent = acked});
    return flow.decide(now).window;
  };
  const Bytes usual = window(kFabric, 0);
  ASSERT_GT(usual, 64 * kFabric.mtu);
  for (const Bytes packets : {0, 1, 20, 48}) {
    EXPECT_EQ(window(unknown, packets * kFabric.mtu), (16 + packets) * kFabric.mtu);
  }
  EXPECT_EQ(window(unknown, usual - 16 * kFabric.mtu - 1), usual - 1);
  EXPECT_EQ(window(unknown, usual), usual);
}

// The receiver does not answer a demand when the flow has its rate already.
TEST_F(CcPaceSenders, UnansweredDemandIsRepeatedAtDoublingIntervals) {
  const FlowStats stats{.backlog = 1 << 30};
  now_ = now_ + Duration::from_us(1);
  const uint16_t first = flows_[0]->demand(now_, stats)->epoch;
  uint16_t last = first;
  for (int i = 0; i < 1000; ++i) {
    now_ = now_ + Duration::from_us(1);
    last = flows_[0]->demand(now_, stats)->epoch;
  }
  EXPECT_GE(last - first, 4);
  EXPECT_LE(last - first, 6) << "16, 32, 64, ... us apart";
}

TEST_F(CcPaceSenders, FlowsWithABacklogShareTheLink) {
  want(0, 1 << 30);
  EXPECT_EQ(gbps(0), 400);
  want(1, 1 << 30);
  EXPECT_NEAR(gbps(0), 200, 2.2);
  EXPECT_NEAR(gbps(1), 200, 2.2);
  senders_.set_weight(now_, 1, 3);
  EXPECT_NEAR(gbps(0), 100, 1.1);
  EXPECT_NEAR(gbps(1), 300, 3.3);
  want(1, 0);
  EXPECT_EQ(gbps(0), 400);
}

TEST_F(CcPaceSenders, OtherFlowsGetTheRateThatAGrantTakesFromOne) {
  want(0, 1 << 30);
  want(1, 1 << 30);
  flows_[0]->on_grant(
      now_,
      {.rate = Rate::from_gbps(50), .aligned = true, .validity = Duration::from_s(1), .epoch = 1});
  EXPECT_EQ(gbps(0), 50);
  EXPECT_NEAR(gbps(1), 350, 4);
}

TEST_F(CcPaceSenders, FlowsAffectedByANewFlowAreReported) {
  want(0, 1 << 30);
  want(1, 1 << 30);
  changed();
  want(2, 1 << 30);
  const std::vector<uint32_t> named = changed();
  EXPECT_NE(std::ranges::find(named, 0U), named.end());
  EXPECT_NE(std::ranges::find(named, 1U), named.end());
  EXPECT_TRUE(changed().empty());
}

// Two flows are limited by their receivers; a new grant changes the spare rate.
TEST_F(CcPaceSenders, FlowsAffectedByASpareRateAreReported) {
  const auto grant = [this](uint32_t flow, double gbps, uint16_t epoch) {
    flows_[flow]->on_grant(now_, {.rate = Rate::from_bps(static_cast<uint64_t>(gbps * 1e9)),
                                  .aligned = true,
                                  .validity = Duration::from_s(1),
                                  .epoch = epoch});
  };
  for (uint32_t flow = 0; flow < 2; ++flow) {
    want(flow, 1 << 30);
    grant(flow, 50, 1);
  }
  changed();
  grant(0, 100, 2);
  EXPECT_EQ(changed(), std::vector<uint32_t>{1});
  grant(0, 100.5, 3);
  EXPECT_TRUE(changed().empty()) << "such a small change is not reported";
  want(2, 1 << 30);
  changed();
  grant(0, 100, 4);
  EXPECT_TRUE(changed().empty()) << "without a spare rate nothing is reported";
}

// Otherwise the last flow could use only half of the link until its next acknowledgement.
TEST_F(CcPaceSenders, LastFlowIsReportedWhenTheOthersHaveFinished) {
  want(0, 1 << 30);
  want(1, 1 << 30);
  changed();
  want(1, 0);
  const std::vector<uint32_t> named = changed();
  EXPECT_NE(std::ranges::find(named, 0U), named.end());
}

TEST_F(CcPaceSenders, RemovedFlowFreesItsShare) {
  want(0, 1 << 30);
  want(1, 1 << 30);
  senders_.remove_flow(now_, 1);
  EXPECT_EQ(gbps(0), 400);
  const std::vector<uint32_t> named = changed();
  EXPECT_EQ(std::ranges::find(named, 1U), named.end());
  flows_[1] = &senders_.add_flow(now_, 1);
  want(1, 1 << 30);
  EXPECT_NEAR(gbps(1), 200, 2.2);
}

TEST_F(CcPaceSenders, ActiveFlowsAreReportedAtDeadlines) {
  EXPECT_EQ(senders_.next_deadline(), Instant::never());
  want(0, 1 << 30);
  changed();
  for (int i = 0; i < 5; ++i) {
    const Instant due = senders_.next_deadline();
    ASSERT_NE(due, Instant::never());
    EXPECT_LE(due - now_, kValidity);
    now_ = std::max(now_, due);
    EXPECT_FALSE(changed().empty());
    EXPECT_GT(senders_.next_deadline(), now_);
  }
  want(0, 0);
  EXPECT_EQ(senders_.next_deadline(), Instant::never());
}

}  // namespace
}  // namespace pacecar::sender_rules_test
