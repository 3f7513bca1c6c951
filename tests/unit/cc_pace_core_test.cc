// What `pace` takes the paths to carry for a flow (CoreLimit).
#include <gtest/gtest.h>

#include <functional>

#include "cc/pace/core_limit.h"

namespace pacecar {
namespace {

constexpr double kLine = 400e9;
constexpr Duration kRoundTrip = Duration::from_us(8);
constexpr Bytes kMtu = 4096;
constexpr PaceConstants kConstants;

class CcPaceCore : public ::testing::Test {
 protected:
  static constexpr int kPackets = 40;  // per round trip

  static FlowEnvironment environment(Duration jitter = {}) {
    return {.line_rate = Rate::from_gbps(400),
            .mtu = kMtu,
            .overhead = 64,
            .burst_bytes = kMtu,
            .base_rtt = kRoundTrip,
            .jitter = jitter};
  }
  // Acknowledgements of some round trips; the delay of each packet by its number.
  void hear(const std::function<Duration(int)>& delay, int round_trips = 1) {
    for (int i = 0; i < kPackets * round_trips; ++i) {
      acknowledge(kRoundTrip / kPackets, delay(i));
    }
  }
  void acknowledge(Duration gap, Duration delay = {}) {
    now_ = now_ + gap;
    sent_ += kMtu;
    core_.on_ack({.now = now_,
                  .rtt = kRoundTrip + delay,
                  .acked = kMtu,
                  .in_flight = kPackets * kMtu,
                  .sent = sent_,
                  .rerouting = rerouting_},
                 core_.rate());
  }
  void hear(Duration delay, int round_trips = 1) {
    hear([=](int) { return delay; }, round_trips);
  }
  void lose(int packets, LossKind kind = LossKind::kMissing) {
    core_.on_loss({.now = now_,
                   .kind = kind,
                   .lost = static_cast<Bytes>(packets) * kMtu,
                   .in_flight = kPackets * kMtu,
                   .sent = sent_});
  }
  static Duration most_late(int i) { return i % 10 < 7 ? Duration::from_us(6) : Duration(); }
  static Duration some_late(int i) { return i % 10 < 3 ? Duration::from_us(6) : Duration(); }

  // Packets of which most are late, until c_f is cut.
  int until_cut() {
    for (int i = 0; i < 1000; ++i) {
      const double before = core_.rate();
      acknowledge(kRoundTrip / kPackets, most_late(i));
      if (core_.rate() < 0.95 * before) return i;
    }
    return 1000;
  }

  CoreLimit core_{environment(), kConstants};
  bool rerouting_ = false;
  Bytes sent_ = kPackets * kMtu;
  Instant now_ = Instant::from_ns(1'000'000'000);
};

TEST_F(CcPaceCore, ClearPathsCarryTheLineRate) {
  EXPECT_GE(core_.rate(), 0.5 * kLine);
  hear(Duration(), 20);
  EXPECT_EQ(core_.rate(), kLine);
  EXPECT_EQ(core_.base_rtt(), kRoundTrip);
}

TEST_F(CcPaceCore, ADelayThatAllPacketsShareIsTheLastHops) {
  hear(Duration(), 20);
  hear(Duration::from_us(6), 20);
  EXPECT_GE(core_.rate(), 0.95 * kLine);
}

TEST_F(CcPaceCore, ButNotOneOfManyRoundTrips) {
  hear(Duration(), 20);
  hear(Duration::from_us(100), 10);
  EXPECT_LT(core_.rate(), 0.5 * kLine);
}

TEST_F(CcPaceCore, SlowsDownWhenMostPacketsStayLate) {
  hear(Duration(), 20);
  hear(most_late, 10);
  EXPECT_LT(core_.rate(), 0.5 * kLine);
  EXPECT_GT(core_.rate(), 0.001 * kLine);
  hear(most_late, 200);
  EXPECT_GE(core_.rate(), kLine / 256) << "never stops";
}

// 1.8 us are less than T, a quarter of the round trip; with a mark they count as 2.8 us.
TEST_F(CcPaceCore, AMarkMakesALateOneOfASmallDelay) {
  const auto after = [this](bool marked) {
    hear(Duration(), 20);
    for (int i = 0; i < kPackets * 10; ++i) {
      now_ = now_ + kRoundTrip / kPackets;
      sent_ += kMtu;
      const bool delayed = i % 10 < 7;
      core_.on_ack({.now = now_,
                    .rtt = kRoundTrip + (delayed ? Duration::from_ns(1800) : Duration()),
                    .acked = kMtu,
                    .in_flight = kPackets * kMtu,
                    .sent = sent_,
                    .echo_marked = marked && delayed},
                   core_.rate());
    }
    return core_.rate();
  };
  EXPECT_GE(after(false), 0.95 * kLine);
  EXPECT_LT(after(true), 0.95 * kLine);
}

TEST_F(CcPaceCore, OneBadRoundTripIsNoReason) {
  hear(Duration(), 20);
  hear(most_late, 1);
  hear(Duration(), 2);
  EXPECT_GE(core_.rate(), 0.95 * kLine);
}

TEST_F(CcPaceCore, SomeBadPathsAreTheNicsWork) {
  hear(Duration(), 20);
  hear(some_late, 50);
  EXPECT_GE(core_.rate(), 0.95 * kLine);
}

TEST_F(CcPaceCore, RecoversWithinAFewCleanRoundTrips) {
  hear(Duration(), 20);
  hear(most_late, 20);
  const double slow = core_.rate();
  hear(Duration(), 3);
  EXPECT_GT(core_.rate(), slow);
  hear(Duration(), 60);
  EXPECT_EQ(core_.rate(), kLine);
}

TEST_F(CcPaceCore, JitterIsNoDelay) {
  CoreLimit calm(environment(Duration::from_us(10)), kConstants);
  Bytes sent = kPackets * kMtu;
  Instant now = now_;
  for (int i = 0; i < 100 * kPackets; ++i) {
    now = now + kRoundTrip / kPackets;
    sent += kMtu;
    calm.on_ack({.now = now,
                 .rtt = kRoundTrip + most_late(i),
                 .acked = kMtu,
                 .in_flight = kPackets * kMtu,
                 .sent = sent},
                calm.rate());
  }
  EXPECT_GE(calm.rate(), 0.95 * kLine);
}

TEST_F(CcPaceCore, ManyLossesAreCongestionFewAreTheCables) {
  hear(Duration(), 20);
  for (int i = 0; i < 4; ++i) {
    lose(1);
    hear(Duration(), 1);
  }
  EXPECT_EQ(core_.rate(), kLine);
  for (int i = 0; i < 4; ++i) {
    lose(10);
    hear(Duration(), 1);
  }
  EXPECT_LE(core_.rate(), 0.85 * kLine) << "a fifth";
}

TEST_F(CcPaceCore, WhatIsTrimmedTellsWhatPassesBeforeTheRoundTripIsOver) {
  hear(Duration(), 20);
  lose(1, LossKind::kTrimmed);
  hear(Duration(), 1);
  EXPECT_EQ(core_.rate(), kLine) << "one says nothing";
  hear(Duration(), 3);
  for (int i = 0; i < 40; ++i) {
    lose(1, LossKind::kTrimmed);
    if (i % 2 == 1) acknowledge(kRoundTrip / (2 * kPackets));
  }
  const double passed = core_.rate();
  EXPECT_LE(passed, 0.4 * kLine);
  EXPECT_GE(passed, 0.2 * kLine);
  for (int i = 0; i < 40; ++i) lose(1, LossKind::kTrimmed);
  EXPECT_EQ(core_.rate(), passed) << "sent before that could help";
}

TEST_F(CcPaceCore, ASlowFlowBearsMoreOfAQueueThanAFastOne) {
  const auto late = [](int i) { return i % 10 < 7 ? Duration::from_us(3) : Duration(); };
  hear(Duration(), 20);
  hear(late, 10);
  EXPECT_LT(core_.rate(), 0.95 * kLine);
  hear(most_late, 20);
  const double slow = core_.rate();
  ASSERT_LT(slow, 0.5 * kLine);
  hear(late, 20);
  EXPECT_GT(core_.rate(), slow);
}

TEST_F(CcPaceCore, HalfOfThePacketsAreNotMost) {
  hear(Duration(), 20);
  hear([](int i) { return i % 2 == 0 ? Duration() : Duration::from_ns(2200); }, 10);
  EXPECT_EQ(core_.rate(), kConstants.core_loaded * kLine);
}

TEST_F(CcPaceCore, AnAcknowledgementWithoutARoundTripMeasuresNothing) {
  for (int i = 0; i < 200; ++i) {
    sent_ += kMtu;
    core_.on_ack({.now = now_, .acked = kMtu, .in_flight = kMtu, .sent = sent_}, core_.rate());
  }
  EXPECT_EQ(core_.base_rtt(), kRoundTrip);
  EXPECT_EQ(core_.rate(), kConstants.core_start * kLine);
}

// Others may begin at the line rate where one has found the network clear.
TEST_F(CcPaceCore, PathsWithTroubleAreNotClear) {
  hear(Duration(), 20);
  EXPECT_TRUE(core_.clear());
  rerouting_ = true;
  hear(most_late, 3);
  EXPECT_GE(core_.rate(), 0.9 * kLine) << "the NIC is given time";
  EXPECT_FALSE(core_.clear());
  hear(Duration(), 3);
  EXPECT_TRUE(core_.clear());
  lose(10);
  hear(Duration(), 1);
  EXPECT_FALSE(core_.clear()) << "it loses many";
}

TEST_F(CcPaceCore, APathThatTrimsIsNotClear) {
  hear(Duration(), 20);
  ASSERT_TRUE(core_.clear());
  lose(32, LossKind::kTrimmed);
  ASSERT_LT(core_.rate(), kLine);
  EXPECT_FALSE(core_.clear());
}

// Behind one queue, without a cut.
TEST_F(CcPaceCore, AFastFlowYieldsToASlowOne) {
  hear(Duration(), 20);
  core_.restart(0.72 * kLine);
  // Less than half are late by more than T, 2 us, so that nothing is cut; on average all are.
  const auto late = [](int i) { return Duration::from_us(i % 10 < 4 ? 6 : 0); };
  hear(late, 10);
  EXPECT_LT(core_.rate(), 0.71 * kLine);
  core_.restart(0.45 * kLine);
  hear(late, 10);
  EXPECT_GT(core_.rate(), 0.46 * kLine);
}

TEST_F(CcPaceCore, EvenWhenNearlyAllIsLostACutLeavesHalf) {
  hear(Duration(), 20);
  for (int i = 0; i < 2; ++i) {
    lose(500);
    hear(Duration(), 1);
  }
  EXPECT_GE(core_.rate(), kConstants.core_least * kLine * 0.99);
  EXPECT_LE(core_.rate(), 0.6 * kLine);
  for (int i = 0; i < 100; ++i) {
    lose(500);
    hear(Duration(), 1);
  }
  EXPECT_GE(core_.rate(), kLine / 256) << "never stops";
  EXPECT_LE(core_.rate(), kLine / 64);
}

TEST_F(CcPaceCore, ACutIsJudgedByWhatWasSentAfterIt) {
  hear(Duration(), 20);
  until_cut();
  EXPECT_GE(until_cut(), 3 * kPackets) << "what was in flight says nothing, and one is no reason";
}

// What drains the queue is over with it, also when the flow has nothing to send meanwhile.
TEST_F(CcPaceCore, PartOfACutIsForAWhile) {
  hear(Duration(), 20);
  until_cut();
  const double draining = core_.rate();
  core_.begin(now_, false);
  EXPECT_EQ(core_.rate(), draining) << "another message";
  now_ = now_ + kRoundTrip * 10;
  core_.begin(now_, false);
  EXPECT_GT(core_.rate(), 1.02 * draining);
}

// One of them may have been between two bursts.
TEST_F(CcPaceCore, ThePathsCarryWhatArrivedInTheBetterOfTwoRoundTrips) {
  hear(Duration(), 20);
  core_.restart(0.7 * kLine);
  while (core_.rate() == 0.7 * kLine) acknowledge(kRoundTrip / kPackets);
  // A round trip is over.
  for (int i = 0; i <= kPackets; ++i) acknowledge(kRoundTrip / (2 * kPackets), most_late(i));
  EXPECT_LE(until_cut(), kPackets) << "half as fast";
  EXPECT_GT(core_.rate(), 0.75 * kLine);
}

// What others have found says nothing of the paths that the flow has seen itself.
TEST_F(CcPaceCore, AClearNetworkIsBelievedByThoseWhoKnowNothing) {
  CoreLimit newcomer(environment(), kConstants);
  newcomer.begin(now_, true);
  EXPECT_EQ(newcomer.rate(), kLine);
  core_.restart(0.5 * kLine);
  hear(Duration(), 1);
  ASSERT_LT(core_.rate(), 0.7 * kLine);
  core_.begin(now_, true);
  EXPECT_LT(core_.rate(), 0.7 * kLine);
}

TEST_F(CcPaceCore, ANicThatLooksForBetterPathsIsGivenTime) {
  rerouting_ = true;
  hear(Duration(), 20);
  hear(most_late, 10);
  EXPECT_GE(core_.rate(), 0.9 * kLine);
  hear(most_late, 10);
  EXPECT_LT(core_.rate(), 0.7 * kLine);
}

TEST_F(CcPaceCore, ASlowFlowGrowsByAQuarterAtMostWhilePathsHaveQueues) {
  hear(Duration(), 20);
  core_.restart(0.01 * kLine);
  hear(some_late, 5);
  EXPECT_GT(core_.rate(), 0.015 * kLine);
  EXPECT_LT(core_.rate(), 0.04 * kLine);
}

TEST_F(CcPaceCore, WhereHostsAreExactFewPacketsCount) {
  hear(Duration(), 20);
  core_.restart(0.7 * kLine);
  for (int i = 0; i < 200; ++i) acknowledge(kRoundTrip / 8, most_late(i));
  EXPECT_LT(core_.rate(), 0.69 * kLine);
}

// What is lost was sent some time ago: what is acknowledged while a sender waits is no measure.
TEST_F(CcPaceCore, FewLossesAreFewAlsoWhileLittleIsAcknowledged) {
  hear(Duration(), 20);
  for (int i = 0; i < 200; ++i) {
    now_ = now_ + kRoundTrip / 10;
    sent_ += kMtu;
    if (i % 10 == 0) lose(2);
    core_.on_ack(
        {.now = now_, .rtt = kRoundTrip, .acked = kMtu, .in_flight = 10 * kMtu, .sent = sent_},
        core_.rate());
  }
  EXPECT_EQ(core_.rate(), kLine);
}

// 5% of what it could send in a round trip, whatever is acknowledged.
TEST_F(CcPaceCore, ManyLossesAreMoreThanATwentiethOfARoundTripsWorth) {
  const auto after = [this](double lost) {
    CoreLimit core(environment(), kConstants);
    const double worth = core.rate() / 8 * kRoundTrip.seconds();
    for (int i = 0; i < 60; ++i) {
      now_ = now_ + kRoundTrip / 10;
      sent_ += kMtu;
      if (i % 10 == 0)
        core.on_loss({.now = now_,
                      .lost = static_cast<Bytes>(lost * worth),
                      .in_flight = 10 * kMtu,
                      .sent = sent_});
      core.on_ack(
          {.now = now_, .rtt = kRoundTrip, .acked = kMtu, .in_flight = 10 * kMtu, .sent = sent_},
          kConstants.core_start * kLine);
    }
    return core.rate();
  };
  EXPECT_EQ(after(0.048), kLine);
  EXPECT_LT(after(0.052), 0.9 * kLine);
}

TEST_F(CcPaceCore, AFewTrimmedPacketsAmongManyAreNoFullQueue) {
  hear(Duration(), 20);
  for (int i = 0; i < 60; ++i) {
    EXPECT_FALSE(core_.on_loss({.now = now_,
                                .kind = LossKind::kTrimmed,
                                .lost = kMtu / 4,
                                .in_flight = kPackets * kMtu,
                                .sent = sent_}));
    for (int packet = 0; packet < 7; ++packet) acknowledge(kRoundTrip / kPackets);
  }
  EXPECT_EQ(core_.rate(), kLine);
}

// What passed before says nothing of the queue that is full now.
TEST_F(CcPaceCore, TrimmedPacketsBelongTogetherForTwoRoundTrips) {
  for (const bool together : {false, true}) {
    CoreLimit core(environment(), kConstants);
    const double before = core.rate();
    const auto trim = [&](Bytes packets) {
      return core.on_loss({.now = now_,
                           .kind = LossKind::kTrimmed,
                           .lost = packets * kMtu,
                           .in_flight = kPackets * kMtu,
                           .sent = sent_});
    };
    EXPECT_FALSE(trim(31));
    now_ = now_ + kRoundTrip * 2 + Duration::from_ns(together ? 0 : 1);
    EXPECT_EQ(trim(1), together);
    EXPECT_EQ(core.rate() < before / 2, together);
    EXPECT_FALSE(core.clear());
  }
}

TEST_F(CcPaceCore, ATimeoutHalves) {
  hear(Duration(), 20);
  core_.on_timeout(core_.rate());
  EXPECT_NEAR(core_.rate(), kLine / 2, 1);
  for (int i = 0; i < 20; ++i) {
    acknowledge(Duration::from_ns(1));
    core_.on_timeout(core_.rate());
  }
  EXPECT_GE(core_.rate(), kLine / 256);
  EXPECT_LT(core_.rate(), kLine / 128);
}

// It may send less meanwhile, as grants lapse.
TEST_F(CcPaceCore, ATimeoutHalvesWhatAFlowSentAtLately) {
  hear(Duration(), 20);
  acknowledge(kRoundTrip / kPackets);
  core_.on_timeout(0.01 * kLine);
  EXPECT_NEAR(core_.rate(), kLine / 2, 1);
  CoreLimit slow(environment(), kConstants);
  slow.on_timeout(0.1 * kLine);
  EXPECT_NEAR(slow.rate(), 0.05 * kLine, 1);
}

TEST_F(CcPaceCore, WhatWasKnownBeforeARestartCountsAgain) {
  hear(Duration(), 20);
  core_.restart(2 * kLine);
  EXPECT_EQ(core_.rate(), kLine) << "it raises nothing";
  core_.restart(0.1 * kLine);
  EXPECT_EQ(core_.rate(), 0.1 * kLine);
  core_.resume();
  EXPECT_EQ(core_.rate(), kLine);
  core_.restart(0.5 * kLine);
  core_.restart(0.4 * kLine);
  hear(Duration(), 20);
  core_.resume();
  EXPECT_EQ(core_.rate(), kLine) << "more was found since";
}

// A failed cable sends all packets on a longer way: they are late no more once that is known.
TEST_F(CcPaceCore, ALongerWayBecomesTheBase) {
  hear(Duration(), 20);
  hear(Duration::from_us(30), 1);
  now_ = now_ + Duration::from_ms(1100);
  hear(Duration::from_us(30), 20);
  now_ = now_ + Duration::from_ms(1100);
  hear(Duration::from_us(30), 60);
  EXPECT_EQ(core_.base_rtt(), kRoundTrip + Duration::from_us(30));
  EXPECT_EQ(core_.rate(), kLine);
}

// While the receiver was late, the paths turned out to be full: its return does not clear them.
TEST_F(CcPaceCore, ACutSinceARestartCountsAfterIt) {
  hear(Duration(), 20);
  core_.restart(0.8 * kLine);
  ASSERT_LT(until_cut(), 1000);
  hear(Duration(), 1);  // what drains the queue is over
  const double cut = core_.rate();
  core_.resume();
  EXPECT_EQ(core_.rate(), cut);
  core_.restart(0.1 * kLine);
  core_.resume();
  EXPECT_EQ(core_.rate(), cut) << "and no more than that is known";

  core_.restart(0.1 * kLine);
  core_.on_timeout(0.1 * kLine);
  core_.resume();
  EXPECT_LT(core_.rate(), 0.1 * kLine);
}

}  // namespace
}  // namespace pacecar
