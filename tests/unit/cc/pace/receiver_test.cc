// The receiver's half of `pace`: the rates that it grants, and when grants leave.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "cc/pace/phase.h"
#include "tests/support/one_controller.h"
#include "tests/support/pace_receiver.h"

namespace pacecar::receiver_test {
namespace {

using namespace test;
using CcPaceReceiver = PaceReceiverTest;

// --- shares ---

TEST_F(CcPaceReceiver, OneFlowHasTheLink) {
  add(1);
  begin(0);
  run(kRoundTrip);
  EXPECT_EQ(rates_[0], kLine);
}

TEST_F(CcPaceReceiver, FlowsShareEqually) {
  for (const uint32_t count : {2U, 3U, 7U, 32U}) {
    add(count);
    for (uint32_t flow = 0; flow < flows_; ++flow) {
      flow < flows_ - count ? demand(flow, kLine, kEndless) : begin(flow);
    }
    run(kRoundTrip * 2);
    for (uint32_t flow = 0; flow < flows_; ++flow) expect_rate(flow, kShared / flows_);
    EXPECT_EQ(receiver_.active_flows(), flows_);
  }
}

TEST_F(CcPaceReceiver, FlowsShareByWeight) {
  add(3);
  for (uint32_t flow = 0; flow < 3; ++flow) begin(flow);
  run(kRoundTrip);
  receiver_.set_weight(now_, 2, 2);
  run(kRoundTrip);
  expect_rate(0, kShared / 4);
  expect_rate(1, kShared / 4);
  expect_rate(2, kShared / 2);
}

TEST_F(CcPaceReceiver, OtherFlowsGetTheRateThatOneCannotUse) {
  add(3);
  begin(0, 40);
  begin(1);
  begin(2);
  run(kRoundTrip * 2);
  EXPECT_GE(rates_[0], 40 * (1 - kTolerance));
  EXPECT_LE(rates_[0], 44)
      << "the grant is a little above 40, so that the flow can show a higher usable rate";
  expect_rate(1, (kShared - 40) / 2);
  expect_rate(2, (kShared - 40) / 2);
  demand(0, kLine, kEndless);
  run(kRoundTrip);
  expect_rate(0, kShared / 3);
}

TEST_F(CcPaceReceiver, SpareRateIsSharedWhenAllAreLimitedElsewhere) {
  add(3);
  for (uint32_t flow = 0; flow < 3; ++flow) begin(flow, 50);
  run(kRoundTrip * 2);
  for (uint32_t flow = 0; flow < 3; ++flow)
    EXPECT_GT(rates_[flow], 50) << "the spare rate is shared";
  EXPECT_LE(sum(), kShared * (1 + kTolerance));
}

TEST_F(CcPaceReceiver, FinishedFlowDoesNotCount) {
  add(2);
  begin(0);
  begin(1, kLine, 4'000'000);
  run(kRoundTrip * 2);
  receiver_.on_arrival(now_, 1, 4'000'000, {1000, 4096});
  run(kRoundTrip);
  EXPECT_EQ(receiver_.active_flows(), 1U);
  expect_rate(0, kLine);
}

// A flow that ends before a new grant takes effect does not count.
TEST_F(CcPaceReceiver, FlowAboutToFinishMakesRoomForOthers) {
  add(2);
  begin(0);
  begin(1, kLine, 4'000'000);
  run(kRoundTrip * 2);
  receiver_.on_arrival(now_, 1, 3'900'000, {1000, 4096});
  run(kRoundTrip / 2);
  EXPECT_EQ(receiver_.active_flows(), 2U);
  expect_rate(1, kShared / 2);
  EXPECT_GE(rates_[0], kShared * (1 - kTolerance));
}

TEST_F(CcPaceReceiver, DemandOfZeroFreesTheRateAtOnce) {
  add(2);
  begin(0);
  begin(1);
  run(kRoundTrip);
  demand(1, 0, 1'000'000);
  run(kRoundTrip);
  expect_rate(0, kLine);
  EXPECT_EQ(receiver_.active_flows(), 1U);
  demand(1, kLine, 2'000'000);
  run(kRoundTrip);
  EXPECT_EQ(receiver_.active_flows(), 2U) << "a new demand makes the flow active again";
}

// --- idle flows ---

TEST_F(CcPaceReceiver, PostedReceivesOfIdleFlowsTakeNothing) {
  add(1001);
  begin(0);
  run(kRoundTrip);
  const double before = rates_[0];
  for (uint32_t flow = 1; flow <= 1000; ++flow) post(flow);
  for (int i = 0; i < 40; ++i) {
    receiver_.on_arrival(now_, 0, 4096, {1000, 4096});
    run(kRoundTrip);
    now_ = now_ + kRoundTrip;
  }
  EXPECT_EQ(rates_[0], before);
}

TEST_F(CcPaceReceiver, IdleFlowsHoldAnEvenPartEach) {
  add(32);
  for (uint32_t flow = 0; flow < 32; ++flow) post(flow);
  run(kRoundTrip * 40);
  EXPECT_LE(sum(), kLine * (1 + kTolerance)) << "all flows may begin at the same time";
  for (uint32_t flow = 0; flow < 32; ++flow) EXPECT_GT(rates_[flow], 0.9 * kShared / 32) << flow;
}

// Regression: the flow was counted with its data and again with its demand, and held half of the
// link.
TEST_F(CcPaceReceiver, FlowWhoseDataOvertakeItsDemandCountsOnce) {
  add(2);
  post(0);
  constexpr Bytes kMessage = 4 * 4096;
  Bytes wanted = 0;
  for (int i = 0; i < 8; ++i) {
    now_ = now_ + kRoundTrip * 10;
    wanted += kMessage;
    receiver_.on_arrival(now_, 0, 4096, {1000, 4096});
    demand(0, kLine, wanted);
    receiver_.on_arrival(now_, 0, kMessage - 4096, {1000, 4096});
    run(kRoundTrip);
  }
  expect_rate(0, kLine);
}

TEST_F(CcPaceReceiver, HintSetsTheExpectedFanIn) {
  add(32);
  receiver_.on_hint(now_, {.peers = 4});
  for (uint32_t flow = 0; flow < 32; ++flow) post(flow);
  run(kRoundTrip * 40);
  for (uint32_t flow = 0; flow < 32; ++flow) expect_rate(flow, kShared / 4);
}

TEST_F(CcPaceReceiver, GrantOfACtsIsTheNewestAndNotAligned) {
  add(2);
  begin(0);
  begin(1);
  run(kRoundTrip);
  for (uint32_t flow = 0; flow < 2; ++flow) {
    EXPECT_EQ(receiver_.grant(flow).rate.gbps(), rates_[flow]);
    EXPECT_EQ(receiver_.grant(flow).epoch, epochs_[flow]);
    EXPECT_FALSE(receiver_.grant(flow).aligned);
  }
  add(1);
  EXPECT_GT(receiver_.grant(2).rate, Rate()) << "a grant exists before the first demand";
}

// --- when grants leave ---

TEST_F(CcPaceReceiver, PollWithASmallSpanReturnsAllGrantsOverSeveralCalls) {
  add(20);
  for (uint32_t flow = 0; flow < 20; ++flow) begin(flow);
  run(kRoundTrip);
  for (uint32_t flow = 0; flow < 10; ++flow) demand(flow, 1, kEndless);
  now_ = std::max(now_, receiver_.next_deadline());
  EXPECT_EQ(poll(3).size(), 20U);
}

TEST_F(CcPaceReceiver, CutsLeaveBeforeRaises) {
  add(20);
  for (uint32_t flow = 0; flow < 20; ++flow) begin(flow, flow < 10 ? 1 : kLine);
  run(kRoundTrip * 2);
  const std::map<uint32_t, double> before = rates_;
  for (uint32_t flow = 0; flow < 10; ++flow) demand(flow, kLine, kEndless);
  now_ = std::max(now_, receiver_.next_deadline());
  const std::vector<GrantUpdate> words = poll(3);
  bool raised = false;
  int cuts = 0;
  for (const GrantUpdate& word : words) {
    const bool cut = word.grant.rate.gbps() < before.at(word.flow);
    EXPECT_FALSE(cut && raised);
    raised |= !cut;
    cuts += cut ? 1 : 0;
  }
  EXPECT_EQ(cuts, 10);
  EXPECT_TRUE(raised);
}

TEST_F(CcPaceReceiver, GrantsAreRepeatedBeforeAQuarterOfTheirValidityIsOver) {
  add(5);
  for (uint32_t flow = 0; flow < 5; ++flow) begin(flow);
  run(kRoundTrip);
  std::map<uint32_t, Instant> last;
  Duration validity = receiver_.grant(0).validity;
  for (uint32_t flow = 0; flow < 5; ++flow) last[flow] = now_;
  for (int i = 0; i < 1000; ++i) {
    now_ = now_ + Duration::from_ns(500);
    for (uint32_t flow = 0; flow < 5; ++flow) receiver_.on_arrival(now_, flow, 4096, {1000, 4096});
    for (const GrantUpdate& word : poll()) last[word.flow] = now_;
    for (const auto& [flow, at] : last) {
      ASSERT_LE(now_ - at, validity / 4 + Duration::from_us(2)) << flow;
    }
  }
}

TEST_F(CcPaceReceiver, GrantsOfManyFlowsLeaveRoomForData) {
  add(1000);
  for (uint32_t flow = 0; flow < 1000; ++flow) begin(flow);
  run(kRoundTrip);
  size_t words = 0;
  for (int i = 0; i < 1000; ++i) {
    now_ = now_ + Duration::from_us(2);
    for (uint32_t flow = 0; flow < 1000; flow += 10) {
      receiver_.on_arrival(now_, flow + static_cast<uint32_t>(i) % 10, 64, {1000, 4096});
    }
    words += poll().size();
  }
  EXPECT_LE(words, 2000 * 5) << "five words per microsecond are 3 Gb/s";
  EXPECT_GE(words, 900U) << "but about every flow gets a grant";
}

// Otherwise each flow that ends would cause a grant to every remaining flow.
TEST_F(CcPaceReceiver, RaisesTakeAtMostATenthOfTheLink) {
  add(500);
  for (uint32_t flow = 0; flow < 500; ++flow) begin(flow);
  run(kRoundTrip * 4);
  size_t words = 0;
  const Instant began = now_;
  for (uint32_t flow = 0; flow < 400; ++flow) {
    demand(flow, 0, 0);
    now_ = now_ + Duration::from_ns(250);
    words += poll().size();
  }
  const double taken = static_cast<double>(words * kWordBytes * 8) / (now_ - began).seconds();
  EXPECT_LE(taken, 0.12 * kLine * 1e9);
  words = run(kRoundTrip * 4).size();
  EXPECT_GE(words, 100U);
  expect_rate(450, kShared / 100);
  EXPECT_GT(receiver_.next_deadline() - now_, Duration::from_us(5))
      << "no raise is pending any more";
}

TEST_F(CcPaceReceiver, CutDoesNotWaitBehindRaises) {
  add(301);
  for (uint32_t flow = 0; flow < 300; ++flow) begin(flow);
  run(kRoundTrip * 20);
  for (uint32_t flow = 0; flow < 30; ++flow) demand(flow, 0, kEndless);
  now_ = std::max(now_, receiver_.next_deadline());
  EXPECT_LT(poll().size(), 100U) << "raises wait";
  const double before = rates_[299];
  receiver_.set_weight(now_, 300, 64);
  begin(300);
  run(Duration::from_us(2));
  EXPECT_LT(rates_[299], 0.9 * before);
}

TEST_F(CcPaceReceiver, FlowIsGrantedItsNewUsableRate) {
  add(3);
  begin(0, 40);
  begin(1);
  begin(2);
  run(kRoundTrip * 2);
  demand(0, 42, kEndless);
  run(Duration::from_us(2));
  EXPECT_NEAR(rates_[0], 42 * 17.0 / 16, 0.1);
}

// It is charged less than its grant, since others may have what its sender cannot use. Were its
// grant cut to that, it would last longer, and be raised again, to and fro until it ends.
TEST_F(CcPaceReceiver, EndingFlowThatCouldUseLessKeepsItsGrant) {
  constexpr Bytes kInAMicrosecond = 12'500;  // at 100 Gb/s
  constexpr Bytes kMessage = 100 * kInAMicrosecond;
  add(1);
  begin(0, 100, kMessage);
  run(Duration::from_us(4));
  const double granted = rates_[0];
  ASSERT_GT(granted, 200) << "what its sender cannot use is on top";
  for (Bytes arrived = 0; arrived + kInAMicrosecond < kMessage; arrived += kInAMicrosecond) {
    receiver_.on_arrival(now_, 0, kInAMicrosecond, {});
    run(Duration::from_us(1));
    EXPECT_EQ(rates_[0], granted) << kMessage - arrived << " bytes before the end";
  }
}

TEST_F(CcPaceReceiver, NoGrantsLeaveWhileNothingChanges) {
  add(3);
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(receiver_.next_deadline(), Instant::never());
  for (uint32_t flow = 0; flow < 3; ++flow) begin(flow, kLine, 1'000'000);
  run(kRoundTrip);
  for (uint32_t flow = 0; flow < 3; ++flow)
    receiver_.on_arrival(now_, flow, 1'000'000, {1000, 4096});
  run(Duration::from_ms(1));
  EXPECT_EQ(receiver_.next_deadline(), Instant::never());
}

// A sender whose host died must not keep its share.
TEST_F(CcPaceReceiver, SilentSenderLosesItsShare) {
  add(2);
  begin(0);
  begin(1);
  run(kRoundTrip);
  const Duration validity = receiver_.grant(0).validity;
  for (int i = 0; i < 400; ++i) {
    now_ = now_ + Duration::from_us(1);
    receiver_.on_arrival(now_, 0, 4096, {1000, 4096});
    poll();
    if (now_ - Instant::from_ns(1'000'000'000) < validity * 2) {
      ASSERT_EQ(receiver_.active_flows(), 2U) << i;
    }
  }
  EXPECT_EQ(receiver_.active_flows(), 1U);
  expect_rate(0, kLine);
  receiver_.on_arrival(now_, 1, 4096, {1000, 4096});
  EXPECT_EQ(receiver_.active_flows(), 2U) << "an arrival makes the flow active again";
}

TEST_F(CcPaceReceiver, OlderDemandsAreIgnored) {
  add(1);
  begin(0, 100);
  Demand old = demands_[0];
  demands_[0].epoch = 65'534;
  // Epochs up to 65,535, each one newer than the last.
  for (const uint16_t epoch : {uint16_t{20'000}, uint16_t{40'000}, uint16_t{65'535}}) {
    old.epoch = epoch;
    old.usable = Rate::from_gbps(100);
    receiver_.on_demand(now_, 0, old);
  }
  run(kRoundTrip);
  old.epoch = 65'000;
  old.usable = Rate();
  receiver_.on_demand(now_, 0, old);
  EXPECT_EQ(receiver_.active_flows(), 1U) << "the epoch is older";
  old.epoch = 0;
  receiver_.on_demand(now_, 0, old);
  EXPECT_EQ(receiver_.active_flows(), 0U) << "the epoch is newer across the wrap";
}

TEST_F(CcPaceReceiver, WantedBytesWrap) {
  add(1);
  post(0);
  Bytes total = 0;
  for (int i = 0; i < 20; ++i) {
    total += Bytes{900} << 20;
    demand(0, kLine, total);
    run(Duration::from_us(2));
    ASSERT_EQ(receiver_.active_flows(), 1U) << i;
    receiver_.on_arrival(now_, 0, Bytes{900} << 20, {1000, 4096});
    ASSERT_EQ(receiver_.active_flows(), 0U) << i;
  }
}

TEST_F(CcPaceReceiver, RemovedAndAddedFlowBeginsAnew) {
  add(3);
  for (uint32_t flow = 0; flow < 3; ++flow) begin(flow);
  run(kRoundTrip);
  receiver_.remove_flow(now_, 1);
  epochs_.erase(1);
  rates_.erase(1);
  run(kRoundTrip);
  expect_rate(0, kShared / 2);
  receiver_.add_flow(now_, 1);
  demands_[1] = {};
  EXPECT_EQ(receiver_.active_flows(), 2U);
  begin(1);
  run(kRoundTrip);
  EXPECT_EQ(receiver_.active_flows(), 3U);
  for (uint32_t flow = 0; flow < 3; ++flow) expect_rate(flow, kShared / 3);
}

TEST_F(CcPaceReceiver, ForeignTrafficIsSubtractedFromGrants) {
  add(2);
  begin(0);
  begin(1);
  run(kRoundTrip);
  for (int i = 0; i < 2000; ++i) {  // 99 Gb/s
    now_ = now_ + Duration::from_ns(336);
    receiver_.on_foreign_arrival(now_, 4096);
    receiver_.on_arrival(now_, 0, 4096, {1000, 4096});
    receiver_.on_arrival(now_, 1, 4096, {1000, 4096});
    poll();
  }
  EXPECT_NEAR(sum(), kShared - 99, 0.05 * kLine);
}

// --- phases ---

// Packets of flows that send in their granted grid arrive evenly spaced.
TEST_F(CcPaceReceiver, PacketsSentInTheGridDoNotMeet) {
  constexpr uint32_t kSenders = 16;
  add(kSenders);
  std::vector<std::shared_ptr<Controller>> senders;
  for (uint32_t flow = 0; flow < kSenders; ++flow) {
    senders.push_back(make_controller("pace", kFabric, Rate()).value());
    senders.back()->demand(now_, {.backlog = kEndless});
    senders.back()->decide(now_);
    now_ = now_ + Duration::from_ns(37);
    begin(flow);
  }
  run(kRoundTrip * 2);
  for (int i = 0; i < 40; ++i) {
    now_ = now_ + Duration::from_us(1);
    for (uint32_t flow = 0; flow < kSenders; ++flow)
      receiver_.on_arrival(now_, flow, 4096, {1000, 4096});
    for (const GrantUpdate& word : poll()) {
      const Instant there = now_ + kRoundTrip / 2;
      senders[word.flow]->on_grant(there, wire::decode_grant(wire::encode_grant(word.grant)));
    }
  }
  std::vector<double> arrivals;  // in the gap
  const double gap =
      pace_gap_ns(Rate::from_bps(static_cast<uint64_t>(rates_[0] * 1e9)), 4096, 4096, 64);
  for (uint32_t flow = 0; flow < kSenders; ++flow) {
    ASSERT_EQ(rates_[flow], rates_[0]);
    const FlowLimits d = senders[flow]->decide(now_ + kRoundTrip / 2);
    ASSERT_GT(d.grid.period, Duration());
    const Instant arrival = d.grid.point + kRoundTrip / 2;
    arrivals.push_back(modulo(static_cast<double>((arrival - now_).ns()), gap));
  }
  std::ranges::sort(arrivals);
  arrivals.push_back(arrivals.front() + gap);
  const double packet = 4160 * 8 / kLine;
  for (size_t i = 1; i < arrivals.size(); ++i) {
    EXPECT_GE(arrivals[i] - arrivals[i - 1], packet - 64 - 3) << "less the time unit of a grant";
  }
}

}  // namespace
}  // namespace pacecar::receiver_test
