// A flow of `pace` from its beginning to its end, at its sender: short messages on a busy link,
// what is announced and when, grants that lapse, and what others of its NIC get then.
#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "cc/pace/sender.h"

namespace pacecar {
namespace {

constexpr Bytes kMtu = 4096;
constexpr Duration kRoundTrip = Duration::from_us(8);
constexpr Duration kForLong = Duration::from_s(9);
constexpr Bytes kEndless = Bytes{1} << 30;
constexpr FlowEnvironment kFabric{.line_rate = Rate::from_gbps(400),
                                  .mtu = kMtu,
                                  .overhead = 64,
                                  .burst_bytes = kMtu,
                                  .base_rtt = kRoundTrip};

PaceConstants clear_core() {
  PaceConstants constants;
  constants.core_start = 1;
  return constants;
}

class CcPaceFlow : public ::testing::Test {
 protected:
  CcPaceFlow() {
    for (uint32_t flow = 0; flow < flows_.size(); ++flow) {
      flows_[flow] = &senders_.add_flow(now_, flow);
    }
  }
  void hear(uint32_t flow, double gbps, Grant word) {
    word.rate = Rate::from_bps(static_cast<uint64_t>(gbps * 1e9));
    if (word.validity == Duration()) word.validity = kForLong;
    word.epoch = ++epoch_;
    flows_[flow]->on_grant(now_, word);
  }
  // What an idle flow holds on a link in use, and an answer.
  void hold_busy(uint32_t flow, double gbps) { hear(flow, gbps, {.busy = true}); }
  void grant(uint32_t flow, double gbps, Duration validity = kForLong) {
    hear(flow, gbps, {.aligned = true, .validity = validity});
  }
  std::optional<Demand> want(uint32_t flow, const FlowStats& stats) {
    const auto demand = flows_[flow]->demand(now_, stats);
    flows_[flow]->decide(now_);
    return demand;
  }
  double gbps(uint32_t flow) { return flows_[flow]->decide(now_).rate.gbps(); }

  Instant now_ = Instant::from_ns(1'000'000'000);
  PaceSenders senders_{kFabric, clear_core(), 4};
  std::array<Controller*, 3> flows_{};
  uint16_t epoch_ = 0;
};

// --- on a link in use ---

constexpr Bytes kSixteenth = 25'000;  // of a bandwidth-delay product

TEST_F(CcPaceFlow, AShortMessageLeavesAtOnceOnABusyLink) {
  hold_busy(0, 50);
  want(0, {.backlog = kSixteenth});
  EXPECT_DOUBLE_EQ(gbps(0), 400);
  hold_busy(0, 40);
  EXPECT_DOUBLE_EQ(gbps(0), 400) << "still on its way";
  grant(0, 30);
  EXPECT_DOUBLE_EQ(gbps(0), 30) << "an answer is obeyed";
  hold_busy(1, 50);
  want(1, {.backlog = kSixteenth + 1});
  EXPECT_DOUBLE_EQ(gbps(1), 50) << "a longer one waits for its answer";
}

TEST_F(CcPaceFlow, AShortMessageThatGrowsIsShortNoMore) {
  hold_busy(0, 50);
  want(0, {.backlog = kSixteenth});
  want(0, {.backlog = kSixteenth / 2, .acked = kSixteenth / 2});
  EXPECT_DOUBLE_EQ(gbps(0), 400);
  want(0, {.backlog = kEndless});
  EXPECT_DOUBLE_EQ(gbps(0), 50);
}

TEST_F(CcPaceFlow, ABriefMessageBeginsWithWhatItHoldsOnABusyLink) {
  hold_busy(0, 50);
  want(0, {.backlog = 300'000});
  EXPECT_DOUBLE_EQ(gbps(0), 50);
}

// The receiver has not asked it to send as one of many.
TEST_F(CcPaceFlow, ABriefMessageThatGrowsHasWhatItHolds) {
  grant(0, 30);
  want(0, {.backlog = 300'000});
  EXPECT_GT(gbps(0), 31);
  want(0, {.backlog = kEndless});
  EXPECT_DOUBLE_EQ(gbps(0), 30);
}

// --- places in the gap ---

TEST_F(CcPaceFlow, AMessageOfOnePacketWaitsForNoPlace) {
  for (const Bytes message : {kMtu, kMtu + 1}) {
    hear(0, 10, {.phase = Duration::from_ns(640), .aligned = true, .guessed = true});
    now_ = now_ + Duration::from_us(1);
    flows_[0]->demand(now_, {.backlog = message});
    for (uint32_t flow = 1; flow < 3; ++flow) {  // so that all of the fan-out begins
      grant(flow, 10);
      want(flow, {.backlog = kEndless});
    }
    const Decision decision = flows_[0]->decide(now_);
    ASSERT_TRUE(decision.aligned);
    EXPECT_EQ(decision.first_send == now_, message == kMtu);
    EXPECT_EQ(decision.grid, SendGrid()) << "the pacer begins anew, and moves nothing";
    for (uint32_t flow = 0; flow < 3; ++flow) want(flow, {});
  }
}

// --- what is announced ---

// A quarter of a round trip's worth of what it holds.
TEST_F(CcPaceFlow, AMessageThatIsGoneBeforeAnAnswerComesIsNotAnnounced) {
  constexpr Bytes kQuarter = 30'000;
  hold_busy(0, 120);
  EXPECT_FALSE(want(0, {.backlog = kQuarter}).has_value());
  want(0, {});
  hold_busy(1, 120);
  EXPECT_TRUE(want(1, {.backlog = kQuarter + 1}).has_value());
}

TEST_F(CcPaceFlow, WhatIsWantedIsToldAgainWhenHalfOfItWasNotToldYet) {
  grant(0, 10);
  const uint16_t first = want(0, {.backlog = 1'000'000})->epoch;
  EXPECT_EQ(want(0, {.backlog = 790'000, .acked = 600'000})->epoch, first) << "400 are left of it";
  const auto more = want(0, {.backlog = 1'000'000, .acked = 600'000});
  EXPECT_NE(more->epoch, first);
  EXPECT_EQ(more->wanted, 1'600'000U);
}

TEST_F(CcPaceFlow, WhatIsWantedIsToldAgainFourRoundTripsBeforeItEnds) {
  for (const Bytes left : {390'000, 420'000}) {
    grant(0, 100);
    const Bytes all = 2'000'000;
    const uint16_t first = want(0, {.backlog = all})->epoch;
    const FlowStats later{.backlog = left + 20'000, .acked = all - left};
    EXPECT_EQ(want(0, later)->epoch != first, left < 400'000);
    want(0, {});
  }
}

TEST_F(CcPaceFlow, AByteIsABacklog) {
  grant(0, 100);
  want(0, {.backlog = 1});
  EXPECT_NE(flows_[0]->explain(now_).limited_by, LimitedBy::kApplication);
  want(0, {});
  EXPECT_EQ(flows_[0]->explain(now_).limited_by, LimitedBy::kApplication);
}

// --- grants that lapse ---

TEST_F(CcPaceFlow, WhatALapsedGrantTakesOthersGet) {
  grant(0, 100, Duration::from_us(50));
  grant(1, 400);
  want(0, {.backlog = kEndless});
  want(1, {.backlog = kEndless});
  EXPECT_NEAR(gbps(1), 300, 4);
  now_ = now_ + Duration::from_us(50);
  EXPECT_DOUBLE_EQ(gbps(0), 50);
  EXPECT_NEAR(gbps(1), 350, 4);
}

TEST_F(CcPaceFlow, AValidityBeyondReasonIsCutShort) {
  grant(0, 100, Duration::from_s(1'000'000));
  want(0, {.backlog = kEndless});
  now_ = now_ + Duration::from_s(60);
  EXPECT_LT(gbps(0), 2);
}

// The grant of before had lapsed, and the paths alone counted, from the little that was left of it.
TEST_F(CcPaceFlow, WhatThePathsCarriedCountsAgainWhenTheReceiverIsBack) {
  constexpr Duration kValidity = Duration::from_us(50);
  grant(0, 100, kValidity);
  want(0, {.backlog = kEndless});
  now_ = now_ + kValidity * 2;
  flows_[0]->on_ack({.now = now_, .rtt = kRoundTrip, .acked = kMtu, .sent = kMtu});
  ASSERT_LT(gbps(0), 2);
  grant(0, 400);
  EXPECT_DOUBLE_EQ(gbps(0), 400);
}

// --- what others get ---

TEST_F(CcPaceFlow, WhatOnesPathsDoNotCarryOthersGetAtOnce) {
  for (uint32_t flow = 0; flow < 2; ++flow) {
    grant(flow, 400);
    want(flow, {.backlog = kEndless});
  }
  Bytes sent = 100 * kMtu;
  double least = 400;
  for (int i = 0; i < 800; ++i) {          // then switches trim, too
    now_ = now_ + Duration::from_ns(400);  // much less than it might
    sent += kMtu;
    const Duration late = i > 100 && i % 10 < 7 ? Duration::from_us(6) : Duration();
    flows_[0]->on_ack({.now = now_,
                       .rtt = kRoundTrip + late,
                       .acked = kMtu,
                       .in_flight = 20 * kMtu,
                       .sent = sent});
    if (i > 600) {
      flows_[0]->on_loss({.now = now_,
                          .kind = LossKind::kTrimmed,
                          .lost = kMtu,
                          .in_flight = 20 * kMtu,
                          .sent = sent});
    }
    least = std::min(least, gbps(0));
    ASSERT_GE(gbps(0) + gbps(1), 390) << i;
  }
  EXPECT_LT(least, 100);
}

TEST_F(CcPaceFlow, TroubleOnOnesPathsIsNoClearNetwork) {
  PaceSenders senders(kFabric, PaceConstants{}, 2);
  Controller& one = senders.add_flow(now_, 0);
  Bytes sent = 100 * kMtu;
  for (int i = 0; i < 400; ++i) {
    now_ = now_ + Duration::from_ns(166);
    sent += kMtu;
    one.on_ack({.now = now_,
                .rtt = kRoundTrip + Duration::from_us(i % 10 < 7 ? 6 : 0),
                .acked = kMtu,
                .in_flight = 50 * kMtu,
                .sent = sent});
  }
  Controller& other = senders.add_flow(now_, 1);
  other.demand(now_, {.backlog = kEndless});
  EXPECT_EQ(other.decide(now_).rate.gbps(), 400 * PaceConstants{}.core_start);
}

// Its host's fan-out is what a guess is multiplied by.
TEST_F(CcPaceFlow, ARemovedFlowIsNeitherOneOfAllNorOneThatHasBegun) {
  hear(1, 50, {.aligned = true, .guessed = true});
  grant(0, 100);
  want(0, {.backlog = kEndless});
  senders_.remove_flow(now_, 0);
  want(1, {.backlog = 300'000});
  EXPECT_NEAR(gbps(1), 100, 1) << "one of two begins";
}

TEST_F(CcPaceFlow, AsManyBriefMessagesLeaveTogetherAsTheLinkCarries) {
  PaceSenders senders(kFabric, clear_core(), 6);
  std::array<Controller*, 6> flows;
  const FlowStats brief{.backlog = 300'000};
  for (uint32_t flow = 0; flow < 6; ++flow) {
    flows[flow] = &senders.add_flow(now_, flow);
    flows[flow]->on_grant(
        now_, {.rate = Rate::from_gbps(50), .aligned = true, .validity = kForLong, .epoch = 1});
  }
  for (Controller* flow : flows) flow->demand(now_, brief);
  for (uint32_t flow = 4; flow < 6; ++flow) flows[flow]->demand(now_, {});
  double sum = 0;
  for (uint32_t flow = 0; flow < 4; ++flow) sum += flows[flow]->decide(now_).rate.gbps();
  EXPECT_NEAR(flows[0]->decide(now_).rate.gbps(), 300, 3) << "three of four parts";
  EXPECT_NEAR(sum, 400, 5);
}

TEST_F(CcPaceFlow, HostsThatPauseAreVisitedNoMoreOftenThanThey) {
  FlowEnvironment environment = kFabric;
  environment.pause = Duration::from_ms(1);
  PaceSenders senders(environment, clear_core(), 1);
  std::array<uint32_t, 1> changed;
  senders.add_flow(now_, 0).demand(now_, {.backlog = kEndless});
  while (senders.poll_changed(now_, changed) > 0) continue;
  EXPECT_EQ(senders.next_deadline(), now_ + environment.pause);
}

}  // namespace
}  // namespace pacecar
