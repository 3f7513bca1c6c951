// A flow of `pace` at its sender, from beginning to end: the beginning on a busy link, demands,
// lapsed grants, and the rates of the other flows of its NIC.
#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "cc/pace/sender.h"

namespace pacecar::flow_test {
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
  void receive_grant(uint32_t flow, double gbps, Grant word) {
    word.rate = Rate::from_bps(static_cast<uint64_t>(gbps * 1e9));
    if (word.validity == Duration()) word.validity = kForLong;
    word.epoch = ++epoch_;
    flows_[flow]->on_grant(now_, word);
  }
  // hold_busy: the hold of an idle flow on a busy link. grant: the answer to a demand.
  void hold_busy(uint32_t flow, double gbps) { receive_grant(flow, gbps, {.busy = true}); }
  void grant(uint32_t flow, double gbps, Duration validity = kForLong) {
    receive_grant(flow, gbps, {.aligned = true, .validity = validity});
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

TEST_F(CcPaceFlow, BriefMessageBeginsAtItsHoldOnABusyLink) {
  for (const Bytes message : {Bytes{1000}, Bytes{25'000}, Bytes{300'000}}) {
    hold_busy(0, 50);
    want(0, {.backlog = message});
    EXPECT_DOUBLE_EQ(gbps(0), 50) << message;
    want(0, {});
  }
}

// The receiver has not asked it to send as one of many.
TEST_F(CcPaceFlow, GrownBriefMessageFallsBackToItsHold) {
  grant(0, 30);
  want(0, {.backlog = 300'000});
  EXPECT_GT(gbps(0), 31);
  want(0, {.backlog = kEndless});
  EXPECT_DOUBLE_EQ(gbps(0), 30);
}

// --- places in the gap ---

TEST_F(CcPaceFlow, MessageOfOnePacketDoesNotWaitForItsPhase) {
  for (const Bytes message : {kMtu, kMtu + 1}) {
    receive_grant(0, 10, {.phase = Duration::from_ns(640), .aligned = true, .guessed = true});
    now_ = now_ + Duration::from_us(1);
    flows_[0]->demand(now_, {.backlog = message});
    for (uint32_t flow = 1; flow < 3; ++flow) {  // all flows of the host begin
      grant(flow, 10);
      want(flow, {.backlog = kEndless});
    }
    const FlowLimits decision = flows_[0]->decide(now_);
    ASSERT_TRUE(decision.aligned);
    EXPECT_EQ(decision.first_send == now_, message == kMtu);
    EXPECT_EQ(decision.grid, SendGrid()) << "the pacer begins anew, without a grid";
    for (uint32_t flow = 0; flow < 3; ++flow) want(flow, {});
  }
}

// --- demands ---

// The limit is what the hold sends in a quarter of a round trip.
TEST_F(CcPaceFlow, MessageThatEndsBeforeAnAnswerIsNotAnnounced) {
  constexpr Bytes kQuarter = 30'000;
  hold_busy(0, 120);
  EXPECT_FALSE(want(0, {.backlog = kQuarter}).has_value());
  want(0, {});
  hold_busy(1, 120);
  EXPECT_TRUE(want(1, {.backlog = kQuarter + 1}).has_value());
}

TEST_F(CcPaceFlow, DemandIsUpdatedFourRoundTripsBeforeTheAnnouncedBytesEnd) {
  for (const Bytes left : {390'000, 420'000}) {
    grant(0, 100);
    const Bytes all = 2'000'000;
    const uint16_t first = want(0, {.backlog = all})->epoch;
    const FlowStats later{.backlog = left + 20'000, .acked = all - left};
    EXPECT_EQ(want(0, later)->epoch != first, left < 400'000);
    want(0, {});
  }
}

TEST_F(CcPaceFlow, OneByteIsABacklog) {
  grant(0, 100);
  want(0, {.backlog = 1});
  EXPECT_NE(flows_[0]->explain(now_).limited_by, LimitedBy::kApplication);
  want(0, {});
  EXPECT_EQ(flows_[0]->explain(now_).limited_by, LimitedBy::kApplication);
}

// --- grants that lapse ---

TEST_F(CcPaceFlow, OtherFlowsGetTheRateOfALapsedGrant) {
  grant(0, 100, Duration::from_us(50));
  grant(1, 400);
  want(0, {.backlog = kEndless});
  want(1, {.backlog = kEndless});
  EXPECT_NEAR(gbps(1), 300, 4);
  now_ = now_ + Duration::from_us(50);
  EXPECT_DOUBLE_EQ(gbps(0), 50);
  EXPECT_NEAR(gbps(1), 350, 4);
}

TEST_F(CcPaceFlow, ExcessiveValidityIsLimited) {
  grant(0, 100, Duration::from_s(1'000'000));
  want(0, {.backlog = kEndless});
  now_ = now_ + Duration::from_s(60);
  EXPECT_LT(gbps(0), 2);
}

// The earlier grant has lapsed. Since then only c_f counts, beginning at the small rate that was
// left.
TEST_F(CcPaceFlow, CoreLimitIsRestoredWhenTheReceiverIsBack) {
  constexpr Duration kValidity = Duration::from_us(50);
  grant(0, 100, kValidity);
  want(0, {.backlog = kEndless});
  now_ = now_ + kValidity * 2;
  flows_[0]->on_ack(now_, {.rtt = kRoundTrip, .acked = kMtu, .sent = kMtu});
  ASSERT_LT(gbps(0), 2);
  grant(0, 400);
  EXPECT_DOUBLE_EQ(gbps(0), 400);
}

// --- rates of other flows ---

TEST_F(CcPaceFlow, OtherFlowsGetTheRateThatOnePathDoesNotCarry) {
  for (uint32_t flow = 0; flow < 2; ++flow) {
    grant(flow, 400);
    want(flow, {.backlog = kEndless});
  }
  Bytes sent = 100 * kMtu;
  double least = 400;
  for (int i = 0; i < 800; ++i) {          // switches trim from 600 on
    now_ = now_ + Duration::from_ns(400);  // far below the granted rate
    sent += kMtu;
    const Duration late = i > 100 && i % 10 < 7 ? Duration::from_us(6) : Duration();
    flows_[0]->on_ack(
        now_, {.rtt = kRoundTrip + late, .acked = kMtu, .in_flight = 20 * kMtu, .sent = sent});
    if (i > 600) {
      flows_[0]->on_loss(
          now_, {.kind = LossKind::kTrimmed, .lost = kMtu, .in_flight = 20 * kMtu, .sent = sent});
    }
    least = std::min(least, gbps(0));
    ASSERT_GE(gbps(0) + gbps(1), 390) << i;
  }
  EXPECT_LT(least, 100);
}

TEST_F(CcPaceFlow, CongestedFlowDoesNotMakeTheNetworkClear) {
  PaceSenders senders(kFabric, PaceConstants{}, 2);
  Controller& one = senders.add_flow(now_, 0);
  Bytes sent = 100 * kMtu;
  for (int i = 0; i < 400; ++i) {
    now_ = now_ + Duration::from_ns(166);
    sent += kMtu;
    one.on_ack(now_, {.rtt = kRoundTrip + Duration::from_us(i % 10 < 7 ? 6 : 0),
                      .acked = kMtu,
                      .in_flight = 50 * kMtu,
                      .sent = sent});
  }
  Controller& other = senders.add_flow(now_, 1);
  other.demand(now_, {.backlog = kEndless});
  EXPECT_EQ(other.decide(now_).rate.gbps(), 400 * PaceConstants{}.core_start);
}

// A guessed grant is multiplied by the fan-out of the sender's host.
TEST_F(CcPaceFlow, RemovedFlowDoesNotCountInTheFanOut) {
  receive_grant(1, 50, {.aligned = true, .guessed = true});
  grant(0, 100);
  want(0, {.backlog = kEndless});
  senders_.remove_flow(now_, 0);
  want(1, {.backlog = 300'000});
  EXPECT_NEAR(gbps(1), 100, 1) << "one of two flows begins";
}

TEST_F(CcPaceFlow, BriefMessagesThatLeaveTogetherFillTheLink) {
  PaceSenders senders(kFabric, clear_core(), 6);
  std::array<Controller*, 6> flows;
  const FlowStats brief{.backlog = 300'000};
  const FlowStats done{.acked = 300'000, .sent = 300'000};
  for (uint32_t flow = 0; flow < 6; ++flow) {
    flows[flow] = &senders.add_flow(now_, flow);
    flows[flow]->on_grant(
        now_, {.rate = Rate::from_gbps(60), .aligned = true, .validity = kForLong, .epoch = 1});
  }
  for (Controller* flow : flows) flow->demand(now_, brief);
  for (uint32_t flow = 4; flow < 6; ++flow) flows[flow]->demand(now_, done);
  double sum = 0;
  for (uint32_t flow = 0; flow < 4; ++flow) sum += flows[flow]->decide(now_).rate.gbps();
  EXPECT_NEAR(flows[0]->decide(now_).rate.gbps(), 300, 3) << "three of four parts";
  EXPECT_NEAR(sum, 400, 5);
}

TEST_F(CcPaceFlow, DeadlineIsAPauseAwayOnHostsThatPause) {
  FlowEnvironment environment = kFabric;
  environment.pause = Duration::from_ms(1);
  PaceSenders senders(environment, clear_core(), 1);
  std::array<uint32_t, 1> changed;
  senders.add_flow(now_, 0).demand(now_, {.backlog = kEndless});
  while (senders.poll_changed(now_, changed) > 0) continue;
  EXPECT_EQ(senders.next_deadline(), now_ + environment.pause);
}

}  // namespace
}  // namespace pacecar::flow_test
