// How brief messages (less than a round trip) begin: at their hold, at a higher rate, or at line
// rate.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <span>

#include "cc/pace/receiver.h"
#include "cc/pace/sender.h"

namespace pacecar::brief_test {
namespace {

constexpr FlowEnvironment kFabric{.line_rate = Rate::from_gbps(400),
                                  .mtu = 4096,
                                  .overhead = 64,
                                  .burst_bytes = 4096,
                                  .base_rtt = Duration::from_us(8)};
constexpr Bytes kBrief = 300'000;  // a round trip's worth is 400'000
constexpr Bytes kEndless = Bytes{1} << 30;

class CcPaceBrief : public ::testing::Test {
 protected:
  static constexpr uint32_t kFlows = 12;
  CcPaceBrief() {
    for (uint32_t flow = 0; flow < kFlows; ++flow) flows_[flow] = &senders_.add_flow(now_, flow);
  }
  // The receivers grant all idle flows this hold.
  void hold(uint64_t gbps, bool guessed) {
    ++epoch_;
    for (Controller* flow : flows_) {
      flow->on_grant(now_, {.rate = Rate::from_gbps(gbps),
                            .aligned = true,
                            .guessed = guessed,
                            .validity = Duration::from_s(9),
                            .epoch = epoch_});
    }
  }
  // `stats`: since the flow's present backlog began; an empty one is acknowledged.
  void want(uint32_t flow, FlowStats stats) {
    if (stats.backlog == 0) ended_[flow] = stats_[flow].acked + stats_[flow].backlog;
    stats.acked += ended_[flow];
    stats.sent = stats.acked + stats.in_flight;
    stats_[flow] = stats;
    look(flow);
  }
  std::optional<Demand> look(uint32_t flow) {
    const auto demand = flows_[flow]->demand(now_, stats_[flow]);
    flows_[flow]->decide(now_);
    return demand;
  }
  uint16_t demand_epoch(uint32_t flow) { return look(flow)->epoch; }
  // Every flow that a change affects decides again.
  void settle() {
    std::array<uint32_t, kFlows> changed;
    for (int round = 0; round < 8; ++round) {
      const size_t count = senders_.poll_changed(now_, changed);
      for (const uint32_t flow : std::span(changed).first(count)) look(flow);
    }
  }
  double gbps(uint32_t flow) { return flows_[flow]->decide(now_).rate.gbps(); }

  static PaceConstants clear_core() {
    PaceConstants constants;
    constants.core_start = 1;
    return constants;
  }
  Instant now_ = Instant::from_ns(1'000'000'000);
  PaceSenders senders_{kFabric, clear_core(), kFlows};
  std::array<Controller*, kFlows> flows_{};
  std::array<FlowStats, kFlows> stats_{};
  std::array<Bytes, kFlows> ended_{};  // FlowStats::acked when the last backlog ended
  uint16_t epoch_ = 0;
};

TEST_F(CcPaceBrief, GuessedGrantIsScaledByTheHostsFanOut) {
  hold(10, true);
  want(0, {.backlog = kBrief});
  EXPECT_NEAR(gbps(0), 120, 1);
  want(1, {.backlog = kBrief});
  EXPECT_NEAR(gbps(0), 60, 1) << "two flows begin at the same instant, so each gets half";
  hold(30, false);
  EXPECT_NEAR(gbps(0), 30, 0.1) << "the receiver's own grant replaces the guess";
}

// Many senders of one long message each may be an incast.
TEST_F(CcPaceBrief, LongMessageBeginsWithAtMostFourTimesAGuess) {
  hold(20, true);
  want(0, {.backlog = kEndless});
  EXPECT_NEAR(gbps(0), 80, 1);
}

// --- one after another ---

TEST_F(CcPaceBrief, BriefMessagesLeaveInTheOrderInWhichTheyBegan) {
  hold(50, false);
  for (uint32_t flow = 0; flow < 6; ++flow) want(flow, {.backlog = kBrief});
  settle();
  EXPECT_NEAR(gbps(0), 200, 2) << "three times its even part";
  EXPECT_NEAR(gbps(1), 200, 2);
  EXPECT_LT(gbps(2), 5);
  want(0, {.backlog = kBrief, .in_flight = kBrief});
  settle();
  EXPECT_NEAR(gbps(1) + gbps(2), 400, 5) << "all of flow 0 is in flight";
  EXPECT_LT(gbps(3), 5);
}

TEST_F(CcPaceBrief, LaterBriefMessageWaits) {
  hold(60, false);
  for (uint32_t flow = 0; flow < 4; ++flow) want(flow, {.backlog = kBrief});
  want(0, {.backlog = kBrief, .in_flight = kBrief});
  want(0, {});
  want(0, {.backlog = kBrief});
  settle();
  EXPECT_LT(gbps(0), 5) << "the three other flows began earlier";
  for (uint32_t flow = 1; flow < 4; ++flow) want(flow, {});
  settle();
  EXPECT_NEAR(gbps(0), 60, 7) << "about its hold";
}

// Otherwise a stream of messages would keep its place for ever.
TEST_F(CcPaceBrief, FlowWithMoreMessagesLeavesTheBriefQueue) {
  hold(200, false);
  want(0, {.backlog = kBrief});
  want(1, {.backlog = kBrief});
  settle();
  EXPECT_LT(gbps(1), 5) << "flow 1 waits for flow 0";
  want(0, {.backlog = kBrief, .acked = kBrief});
  settle();
  EXPECT_NEAR(gbps(1), 200, 4);
}

TEST_F(CcPaceBrief, BriefMessagesTakeNoMoreThanTheirFairShareTogether) {
  hold(200, false);
  want(4, {.backlog = kEndless});
  want(5, {.backlog = kEndless});
  for (uint32_t flow = 0; flow < 2; ++flow) want(flow, {.backlog = kBrief});
  settle();
  EXPECT_NEAR(gbps(4), 100, 2);
  EXPECT_NEAR(gbps(5), 100, 2);
  EXPECT_NEAR(gbps(0) + gbps(1), 200, 4);
}

TEST_F(CcPaceBrief, WeightedFlowsShareInsteadOfQueueing) {
  hold(70, false);
  for (uint32_t flow = 0; flow < 4; ++flow) senders_.set_weight(now_, flow, 2);
  for (uint32_t flow = 0; flow < 4; ++flow) want(flow, {.backlog = kBrief});
  hold(70, false);
  settle();
  for (uint32_t flow = 0; flow < 4; ++flow) EXPECT_NEAR(gbps(flow), 70, 1) << "their hold";
}

TEST_F(CcPaceBrief, GrantBelowHalfOfTheEvenPartIsObeyed) {
  hold(60, false);
  for (uint32_t flow = 0; flow < 4; ++flow) want(flow, {.backlog = kBrief});
  settle();
  EXPECT_NEAR(gbps(0), 300, 2);
  now_ = now_ + Duration::from_us(1);
  hold(60, false);
  settle();
  EXPECT_NEAR(gbps(0), 300, 2) << "60 is more than half of the even part, 100";
  hold(40, false);
  settle();
  EXPECT_NEAR(gbps(0), 40, 1) << "many senders share that receiver";
  hold(60, false);
  settle();
  EXPECT_NEAR(gbps(0), 300, 2);
}

// A grant that is raised for it would come after its end.
TEST_F(CcPaceBrief, LastBriefMessageKeepsTheLineRate) {
  hold(50, false);
  for (uint32_t flow = 0; flow < 8; ++flow) want(flow, {.backlog = kBrief});
  hold(50, false);
  for (uint32_t flow = 0; flow < 7; ++flow) want(flow, {});
  settle();
  EXPECT_EQ(gbps(7), 400);
}

// Otherwise each message that ends would make all other flows send a demand.
TEST_F(CcPaceBrief, FlowNotLimitedByItsGrantKeepsItsDemand) {
  hold(50, false);
  for (uint32_t flow = 0; flow < 8; ++flow) want(flow, {.backlog = kBrief});
  hold(50, false);
  const uint16_t epoch = demand_epoch(7);
  for (uint32_t flow = 0; flow < 6; ++flow) want(flow, {});
  settle();
  EXPECT_EQ(demand_epoch(7), epoch);
}

TEST_F(CcPaceBrief, FlowLimitedByItsGrantUpdatesItsDemand) {
  hold(55, false);
  const FlowStats waiting{.backlog = kBrief};
  const FlowStats on_its_way{.backlog = kBrief, .in_flight = kBrief};
  for (uint32_t flow = 0; flow < 4; ++flow) want(flow, waiting);
  hold(55, false);
  want(1, on_its_way);
  want(1, waiting);
  const uint16_t epoch = demand_epoch(0);
  want(1, on_its_way);
  const uint16_t other = demand_epoch(1);
  for (uint32_t flow = 4; flow < 8; ++flow) want(flow, waiting);
  EXPECT_NE(demand_epoch(0), epoch);
  EXPECT_EQ(demand_epoch(1), other) << "flow 1 is in flight, and needs no rate";
}

TEST_F(CcPaceBrief, LongMessageUpdatesItsDemandWhenAnotherEnds) {
  hold(200, false);
  for (uint32_t flow = 0; flow < 3; ++flow) want(flow, {.backlog = kEndless});
  settle();
  hold(200, false);
  const uint16_t epoch = demand_epoch(0);
  want(1, {});
  EXPECT_NE(demand_epoch(0), epoch);
}

TEST_F(CcPaceBrief, SingleBriefMessageObeysItsGrant) {
  hold(300, false);
  want(0, {.backlog = kBrief});
  hold(310, false);
  EXPECT_NEAR(gbps(0), 310, 1) << "although its own link could carry more";
}

TEST_F(CcPaceBrief, GrantOfTheLastMessageDoesNotLimitTheNext) {
  hold(21, false);
  for (uint32_t flow = 0; flow < kFlows; ++flow) want(flow, {.backlog = kBrief});
  settle();
  hold(21, false);
  for (uint32_t flow = 0; flow < kFlows; ++flow) want(flow, {});
  for (uint32_t flow = 0; flow < 2; ++flow) want(flow, {.backlog = kBrief});
  settle();
  EXPECT_NEAR(gbps(0), 21, 1) << "about its hold";
}

TEST_F(CcPaceBrief, UnannouncedMessageSendsAtItsHold) {
  hold(10, false);
  for (uint32_t flow = 1; flow < 6; ++flow) want(flow, {.backlog = kBrief});
  want(0, {.backlog = 8'000});
  hold(11, false);
  EXPECT_NEAR(gbps(0), 11, 0.1);
}

TEST_F(CcPaceBrief, NewFlowDoesNotInheritThePlaceOfARemovedOne) {
  hold(50, false);
  for (uint32_t flow = 0; flow < 6; ++flow) want(flow, {.backlog = kBrief});
  senders_.remove_flow(now_, 0);
  flows_[0] = &senders_.add_flow(now_, 0);
  hold(50, false);
  want(0, {.backlog = kBrief});
  settle();
  EXPECT_LT(gbps(0), 5) << "the other flows began earlier";
}

// A brief message could not make up for a gap that it loses.
TEST_F(CcPaceBrief, BriefMessageMayBeLateByHalfAGap) {
  hold(10, false);
  want(0, {.backlog = kBrief});
  want(1, {.backlog = kEndless});
  now_ = now_ + Duration::from_us(1);
  hold(10, false);
  const SendGrid grid = flows_[0]->decide(now_).grid;
  ASSERT_GT(grid.period, Duration());
  EXPECT_EQ(grid.late, grid.period / 2);
  EXPECT_EQ(flows_[1]->decide(now_).grid.late, Duration()) << "a long message has time";
}

// It could not make up for the wait for another place, either.
TEST_F(CcPaceBrief, LastTwoPacketsOfABriefMessageAreNotMovedToANewGrid) {
  constexpr Bytes kPacket = 4096;
  hold(10, false);
  want(0, {.backlog = 3 * kPacket});
  want(1, {.backlog = 2 * kPacket});
  want(2, {.backlog = kEndless});
  want(2,
       {.backlog = 2 * kPacket, .acked = kEndless - 2 * kPacket, .sent = kEndless - 2 * kPacket});
  for (const bool again : {false, true}) {
    hold(again ? 11 : 10, false);
    EXPECT_GT(flows_[0]->decide(now_).grid.period, Duration());
    EXPECT_EQ(flows_[1]->decide(now_).grid, SendGrid());
    EXPECT_GT(flows_[2]->decide(now_).grid.period, Duration()) << "it is long";
  }
}

TEST_F(CcPaceBrief, LongMessageBeginsAtItsHold) {
  hold(30, false);
  for (uint32_t flow = 0; flow < 3; ++flow) want(flow, {.backlog = kEndless});
  EXPECT_NEAR(gbps(2), 30, 0.1);
}

TEST_F(CcPaceBrief, HalfARoundTripOfTheHoldLeavesAtLineRate) {
  hold(40, false);
  want(0, {.backlog = 19'000});
  EXPECT_EQ(gbps(0), 400);
  want(1, {.backlog = 24'000});
  EXPECT_LT(gbps(1), 100);
}

// Ten flows hold the link together. If all begin, their queue at the end is the same for every
// length.
TEST_F(CcPaceBrief, InitialRateKeepsTheReceiversQueueTheSameForAnyLength) {
  hold(40, false);
  for (const Bytes message : {24'000, 40'000, 100'000, 300'000}) {
    want(0, {.backlog = message});
    const double queued = (gbps(0) * 10 - 400) / (gbps(0) * 10) * static_cast<double>(message) * 10;
    EXPECT_NEAR(queued, 200'000, 2'000) << message;
    want(0, {});
  }
}

TEST_F(CcPaceBrief, GuessedHoldDoesNotLeaveAtLineRate) {
  hold(20, true);
  want(0, {.backlog = 9'000});
  EXPECT_NEAR(gbps(0), 240, 1);
}

TEST_F(CcPaceBrief, BriefMessageInFlightFreesTheLink) {
  hold(400, false);
  want(0, {.backlog = kBrief});
  want(1, {.backlog = kEndless});
  EXPECT_NEAR(gbps(1), 200, 3);
  want(0, {.backlog = kBrief, .in_flight = kBrief});
  EXPECT_EQ(gbps(1), 400);
}

TEST_F(CcPaceBrief, LongMessageKeepsItsPartUntilAcknowledged) {
  hold(400, false);
  want(0, {.backlog = 1'000'000});
  want(1, {.backlog = kEndless});
  want(0, {.backlog = 1'000'000, .in_flight = 1'000'000});
  EXPECT_NEAR(gbps(1), 200, 3);
}

TEST_F(CcPaceBrief, GrownBacklogIsNoLongerBrief) {
  hold(400, false);
  want(0, {.backlog = kBrief});
  want(1, {.backlog = kEndless});
  want(0, {.backlog = 1 << 20, .in_flight = 1 << 20});
  EXPECT_NEAR(gbps(1), 200, 3);
}

TEST_F(CcPaceBrief, UsableRateFarAboveTheGrantIsNotAdvertised) {
  hold(80, false);
  const FlowStats busy{.backlog = kEndless};
  want(0, busy);
  const uint16_t epoch = demand_epoch(0);
  want(1, busy);  // 320 Gb/s are usable now
  now_ = now_ + Duration::from_us(1);
  EXPECT_EQ(demand_epoch(0), epoch);
  for (uint32_t flow = 2; flow < 6; ++flow) want(flow, busy);
  EXPECT_NE(demand_epoch(0), epoch) << "a usable rate below the grant is advertised";
}

// --- guessed grants of the receiver ---

TEST(CcPaceGuess, HoldIsMarkedAsGuessedUntilTheFirstEpisodeEnds) {
  constexpr uint32_t kFlows = 10;
  constexpr Bytes kMessage = 1 << 20;
  constexpr Bytes kLittle = 16'384;
  PaceReceiver receiver(kFabric, kFlows);
  Instant now = Instant::from_ns(1'000'000'000);
  std::array<GrantUpdate, 16> updates;
  std::array<bool, kFlows> guessed{};
  const auto run = [&](Duration span) {
    for (const Instant end = now + span; now < end; now = now + Duration::from_ns(250)) {
      const size_t count = receiver.poll_grants(now, updates);
      for (const GrantUpdate& update : std::span(updates).first(count)) {
        guessed[update.flow] = update.grant.guessed;
      }
    }
  };
  const auto arrive = [&](uint32_t flow, Bytes bytes) {
    for (Bytes got = 0; got < bytes; got += 4096)
      receiver.on_arrival(now, flow, 4096, {4000, 4096});
    receiver.on_finished(now, flow, bytes);
  };
  for (uint32_t flow = 0; flow < kFlows; ++flow) {
    receiver.add_flow(now, flow);
    receiver.on_posted(now, flow, kMessage);
  }
  run(Duration::from_us(20));
  EXPECT_TRUE(guessed[9]);
  EXPECT_TRUE(receiver.grant(9).guessed) << "the grant in the CTS is guessed, too";
  for (uint32_t flow = 0; flow < 9; ++flow) {
    receiver.on_demand(now, flow, {.usable = kFabric.line_rate, .wanted = kMessage, .epoch = 1});
  }
  run(Duration::from_us(30));
  EXPECT_FALSE(guessed[0]) << "the grant of an active flow is no guess";
  for (uint32_t flow = 0; flow < 9; ++flow) {
    arrive(flow, kMessage);
    receiver.on_posted(now, flow, kMessage);
  }
  run(Duration::from_ms(1));
  // The next demand ends the episode: nine flows began, where ten could have.
  receiver.on_demand(now, 0,
                     {.usable = kFabric.line_rate, .wanted = kMessage + kLittle, .epoch = 2});
  run(Duration::from_us(2));
  arrive(0, kLittle);
  run(Duration::from_ms(1));
  EXPECT_FALSE(receiver.grant(9).guessed);
  EXPECT_FALSE(guessed[9]) << "the flag is sent although the hold has hardly changed";
}

}  // namespace
}  // namespace pacecar::brief_test
