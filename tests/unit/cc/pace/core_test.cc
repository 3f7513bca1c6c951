// CoreLimit: the rate that the paths carry for a flow, c_f.
#include <gtest/gtest.h>

#include <functional>

#include "cc/pace/core_limit.h"

namespace pacecar::core_test {
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
  // Acknowledgements of some round trips; `delay` is that of a packet by its number.
  void acknowledge_round_trips(const std::function<Duration(int)>& delay, int round_trips = 1) {
    for (int i = 0; i < kPackets * round_trips; ++i) {
      acknowledge(kRoundTrip / kPackets, delay(i));
    }
  }
  void acknowledge(Duration gap, Duration delay = {}) {
    now_ = now_ + gap;
    sent_ += kMtu;
    core_.on_ack(now_,
                 {.rtt = kRoundTrip + delay,
                  .acked = kMtu,
                  .in_flight = kPackets * kMtu,
                  .sent = sent_,
                  .rerouting = rerouting_},
                 core_.rate());
  }
  void acknowledge_round_trips(Duration delay, int round_trips = 1) {
    acknowledge_round_trips([=](int) { return delay; }, round_trips);
  }
  void lose(int packets, LossKind kind = LossKind::kMissing) {
    core_.on_loss(now_, {.kind = kind,
                         .lost = static_cast<Bytes>(packets) * kMtu,
                         .in_flight = kPackets * kMtu,
                         .sent = sent_});
  }
  static Duration most_late(int i) { return i % 10 < 7 ? Duration::from_us(6) : Duration(); }
  static Duration some_late(int i) { return i % 10 < 3 ? Duration::from_us(6) : Duration(); }

  // Acknowledges packets of which most are late until c_f is cut; returns how many.
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
  acknowledge_round_trips(Duration(), 20);
  EXPECT_EQ(core_.rate(), kLine);
  EXPECT_EQ(core_.base_rtt(), kRoundTrip);
}

TEST_F(CcPaceCore, RateFallsWhileMostPacketsStayLate) {
  acknowledge_round_trips(Duration(), 20);
  acknowledge_round_trips(most_late, 10);
  EXPECT_LT(core_.rate(), 0.5 * kLine);
  EXPECT_GT(core_.rate(), 0.001 * kLine);
  acknowledge_round_trips(most_late, 200);
  EXPECT_GE(core_.rate(), kLine / 256) << "the rate keeps a least value";
}

// 1.8 us are less than T, a quarter of the round trip; with a mark they count as 2.8 us.
TEST_F(CcPaceCore, MarkMakesASmallDelayCountAsLate) {
  const auto after = [this](bool marked) {
    acknowledge_round_trips(Duration(), 20);
    for (int i = 0; i < kPackets * 10; ++i) {
      now_ = now_ + kRoundTrip / kPackets;
      sent_ += kMtu;
      const bool delayed = i % 10 < 7;
      core_.on_ack(now_,
                   {.rtt = kRoundTrip + (delayed ? Duration::from_ns(1800) : Duration()),
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

TEST_F(CcPaceCore, OneBadRoundTripDoesNotCutTheRate) {
  acknowledge_round_trips(Duration(), 20);
  acknowledge_round_trips(most_late, 1);
  acknowledge_round_trips(Duration(), 2);
  EXPECT_GE(core_.rate(), 0.95 * kLine);
}

TEST_F(CcPaceCore, FewBadPathsDoNotCutTheRate) {
  acknowledge_round_trips(Duration(), 20);
  acknowledge_round_trips(some_late, 50);
  EXPECT_GE(core_.rate(), 0.95 * kLine);
}

TEST_F(CcPaceCore, RateRecoversWithinAFewCleanRoundTrips) {
  acknowledge_round_trips(Duration(), 20);
  acknowledge_round_trips(most_late, 20);
  const double slow = core_.rate();
  acknowledge_round_trips(Duration(), 3);
  EXPECT_GT(core_.rate(), slow);
  acknowledge_round_trips(Duration(), 60);
  EXPECT_EQ(core_.rate(), kLine);
}

TEST_F(CcPaceCore, JitterDoesNotCountAsDelay) {
  CoreLimit calm(environment(Duration::from_us(10)), kConstants);
  Bytes sent = kPackets * kMtu;
  Instant now = now_;
  for (int i = 0; i < 100 * kPackets; ++i) {
    now = now + kRoundTrip / kPackets;
    sent += kMtu;
    calm.on_ack(now,
                {.rtt = kRoundTrip + most_late(i),
                 .acked = kMtu,
                 .in_flight = kPackets * kMtu,
                 .sent = sent},
                calm.rate());
  }
  EXPECT_GE(calm.rate(), 0.95 * kLine);
}

TEST_F(CcPaceCore, ManyLossesCutTheRateAndFewDoNot) {
  acknowledge_round_trips(Duration(), 20);
  for (int i = 0; i < 4; ++i) {
    lose(1);
    acknowledge_round_trips(Duration(), 1);
  }
  EXPECT_EQ(core_.rate(), kLine);
  for (int i = 0; i < 4; ++i) {
    lose(10);
    acknowledge_round_trips(Duration(), 1);
  }
  EXPECT_LE(core_.rate(), 0.85 * kLine) << "10 lost per 40 acknowledged cut by a fifth";
}

TEST_F(CcPaceCore, TrimmedPacketsCutTheRateWithinARoundTrip) {
  acknowledge_round_trips(Duration(), 20);
  lose(1, LossKind::kTrimmed);
  acknowledge_round_trips(Duration(), 1);
  EXPECT_EQ(core_.rate(), kLine) << "one trimmed packet does not count";
  acknowledge_round_trips(Duration(), 3);
  for (int i = 0; i < 40; ++i) {
    lose(1, LossKind::kTrimmed);
    if (i % 2 == 1) acknowledge(kRoundTrip / (2 * kPackets));
  }
  const double passed = core_.rate();
  EXPECT_LE(passed, 0.4 * kLine);
  EXPECT_GE(passed, 0.2 * kLine);
  for (int i = 0; i < 40; ++i) lose(1, LossKind::kTrimmed);
  EXPECT_EQ(core_.rate(), passed) << "these packets were sent before the cut";
}

TEST_F(CcPaceCore, SlowFlowToleratesMoreDelayThanAFastOne) {
  const auto late = [](int i) { return i % 10 < 7 ? Duration::from_us(3) : Duration(); };
  acknowledge_round_trips(Duration(), 20);
  acknowledge_round_trips(late, 10);
  EXPECT_LT(core_.rate(), 0.95 * kLine);
  acknowledge_round_trips(most_late, 20);
  const double slow = core_.rate();
  ASSERT_LT(slow, 0.5 * kLine);
  acknowledge_round_trips(late, 20);
  EXPECT_GT(core_.rate(), slow);
}

TEST_F(CcPaceCore, HalfOfThePacketsAreNotMost) {
  acknowledge_round_trips(Duration(), 20);
  acknowledge_round_trips([](int i) { return i % 2 == 0 ? Duration() : Duration::from_ns(2200); },
                          10);
  EXPECT_EQ(core_.rate(), kConstants.core_loaded * kLine);
}

TEST_F(CcPaceCore, AckWithoutARoundTripIsNotMeasured) {
  for (int i = 0; i < 200; ++i) {
    sent_ += kMtu;
    core_.on_ack(now_, {.acked = kMtu, .in_flight = kMtu, .sent = sent_}, core_.rate());
  }
  EXPECT_EQ(core_.base_rtt(), kRoundTrip);
  EXPECT_EQ(core_.rate(), kConstants.core_start * kLine);
}

// Where one flow finds the network clear, others begin at the line rate.
TEST_F(CcPaceCore, LateOrLossyPathsAreNotClear) {
  acknowledge_round_trips(Duration(), 20);
  EXPECT_TRUE(core_.clear());
  rerouting_ = true;
  acknowledge_round_trips(most_late, 3);
  EXPECT_GE(core_.rate(), 0.9 * kLine) << "rerouting delays the cut";
  EXPECT_FALSE(core_.clear());
  acknowledge_round_trips(Duration(), 3);
  EXPECT_TRUE(core_.clear());
  lose(10);
  acknowledge_round_trips(Duration(), 1);
  EXPECT_FALSE(core_.clear()) << "many packets were lost";
}

TEST_F(CcPaceCore, TrimmingPathsAreNotClear) {
  acknowledge_round_trips(Duration(), 20);
  ASSERT_TRUE(core_.clear());
  lose(32, LossKind::kTrimmed);
  ASSERT_LT(core_.rate(), kLine);
  EXPECT_FALSE(core_.clear());
}

// Flows that meet the same queue converge without a cut.
TEST_F(CcPaceCore, FastFlowYieldsToASlowOne) {
  acknowledge_round_trips(Duration(), 20);
  core_.restart(0.72 * kLine);
  // Less than half are late by more than T, 2 us, so that nothing is cut; on average all are.
  const auto late = [](int i) { return Duration::from_us(i % 10 < 4 ? 6 : 0); };
  acknowledge_round_trips(late, 10);
  EXPECT_LT(core_.rate(), 0.71 * kLine);
  core_.restart(0.45 * kLine);
  acknowledge_round_trips(late, 10);
  EXPECT_GT(core_.rate(), 0.46 * kLine);
}

TEST_F(CcPaceCore, LossCutTakesAtMostHalf) {
  acknowledge_round_trips(Duration(), 20);
  for (int i = 0; i < 2; ++i) {
    lose(500);
    acknowledge_round_trips(Duration(), 1);
  }
  EXPECT_GE(core_.rate(), kConstants.core_least * kLine * 0.99);
  EXPECT_LE(core_.rate(), 0.6 * kLine);
  for (int i = 0; i < 100; ++i) {
    lose(500);
    acknowledge_round_trips(Duration(), 1);
  }
  EXPECT_GE(core_.rate(), kLine / 256) << "the rate keeps a least value";
  EXPECT_LE(core_.rate(), kLine / 64);
}

TEST_F(CcPaceCore, NextCutNeedsPacketsSentAfterTheLastOne) {
  acknowledge_round_trips(Duration(), 20);
  until_cut();
  EXPECT_GE(until_cut(), 3 * kPackets)
      << "packets in flight at the cut do not count, and one round trip does not suffice";
}

// The part that drains the queue ends with the queue, also if the flow is idle meanwhile.
TEST_F(CcPaceCore, PartOfACutIsTemporary) {
  acknowledge_round_trips(Duration(), 20);
  until_cut();
  const double draining = core_.rate();
  core_.begin(now_, false);
  EXPECT_EQ(core_.rate(), draining) << "another message does not end the cut";
  now_ = now_ + kRoundTrip * 10;
  core_.begin(now_, false);
  EXPECT_GT(core_.rate(), 1.02 * draining);
}

// One of the two round trips may have been between two bursts.
TEST_F(CcPaceCore, CutUsesTheBetterOfTwoRoundTrips) {
  acknowledge_round_trips(Duration(), 20);
  core_.restart(0.7 * kLine);
  while (core_.rate() == 0.7 * kLine) acknowledge(kRoundTrip / kPackets);
  // The next round trip begins here.
  for (int i = 0; i <= kPackets; ++i) acknowledge(kRoundTrip / (2 * kPackets), most_late(i));
  EXPECT_LE(until_cut(), kPackets) << "half as fast";
  EXPECT_GT(core_.rate(), 0.7 * kLine);
}

// A flow that has measured its own paths ignores the findings of other flows.
TEST_F(CcPaceCore, OnlyANewFlowBeginsAtTheLineRateOfAClearNetwork) {
  CoreLimit newcomer(environment(), kConstants);
  newcomer.begin(now_, true);
  EXPECT_EQ(newcomer.rate(), kLine);
  core_.restart(0.5 * kLine);
  acknowledge_round_trips(Duration(), 1);
  ASSERT_LT(core_.rate(), 0.7 * kLine);
  core_.begin(now_, true);
  EXPECT_LT(core_.rate(), 0.7 * kLine);
}

TEST_F(CcPaceCore, ReroutingDelaysTheCut) {
  rerouting_ = true;
  acknowledge_round_trips(Duration(), 20);
  acknowledge_round_trips(most_late, 10);
  EXPECT_GE(core_.rate(), 0.9 * kLine);
  acknowledge_round_trips(most_late, 10);
  EXPECT_LT(core_.rate(), 0.7 * kLine);
}

// By at most 1/64 of the line rate in a round trip.
TEST_F(CcPaceCore, FlowGrowsGentlyWhilePathsHaveQueues) {
  acknowledge_round_trips(Duration(), 20);
  core_.restart(0.01 * kLine);
  acknowledge_round_trips(some_late, 5);
  EXPECT_GT(core_.rate(), 0.015 * kLine);
  EXPECT_LT(core_.rate(), (0.01 + 5.0 / 64) * kLine);
}

TEST_F(CcPaceCore, FewPacketsSufficeWithoutJitter) {
  acknowledge_round_trips(Duration(), 20);
  core_.restart(0.7 * kLine);
  for (int i = 0; i < 200; ++i) acknowledge(kRoundTrip / 8, most_late(i));
  EXPECT_LT(core_.rate(), 0.69 * kLine);
}

TEST_F(CcPaceCore, LossesAboveATwentiethCutTheRate) {
  const auto after = [this](double lost) {
    CoreLimit core(environment(), kConstants);
    const auto each = static_cast<Bytes>(lost / (1 - lost) * kMtu);
    for (int i = 0; i < 60; ++i) {
      now_ = now_ + kRoundTrip / 10;
      sent_ += kMtu;
      core.on_loss(now_, {.lost = each, .in_flight = 10 * kMtu, .sent = sent_});
      core.on_ack(now_, {.rtt = kRoundTrip, .acked = kMtu, .in_flight = 10 * kMtu, .sent = sent_},
                  kConstants.core_start * kLine);
    }
    return core.rate();
  };
  EXPECT_EQ(after(0.048), kLine);
  EXPECT_LT(after(0.052), 0.9 * kLine);
}

TEST_F(CcPaceCore, FewTrimmedPacketsDoNotCutTheRate) {
  acknowledge_round_trips(Duration(), 20);
  for (int i = 0; i < 60; ++i) {
    EXPECT_FALSE(core_.on_loss(now_, {.kind = LossKind::kTrimmed,
                                      .lost = kMtu / 4,
                                      .in_flight = kPackets * kMtu,
                                      .sent = sent_}));
    for (int packet = 0; packet < 7; ++packet) acknowledge(kRoundTrip / kPackets);
  }
  EXPECT_EQ(core_.rate(), kLine);
}

// Packets that were trimmed earlier than two round trips ago do not count for a queue that is full
// now.
TEST_F(CcPaceCore, TrimmedPacketsAreCountedOverTwoRoundTrips) {
  for (const bool together : {false, true}) {
    CoreLimit core(environment(), kConstants);
    const double before = core.rate();
    const auto trim = [&](Bytes packets) {
      return core.on_loss(now_, {.kind = LossKind::kTrimmed,
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

TEST_F(CcPaceCore, TimeoutHalvesTheRate) {
  acknowledge_round_trips(Duration(), 20);
  core_.on_timeout(core_.rate());
  EXPECT_NEAR(core_.rate(), kLine / 2, 1);
  for (int i = 0; i < 20; ++i) {
    acknowledge(Duration::from_ns(1));
    core_.on_timeout(core_.rate());
  }
  EXPECT_GE(core_.rate(), kLine / 256);
  EXPECT_LT(core_.rate(), kLine / 128);
}

// The flow may send at a lower rate when the timeout comes, as its grant has lapsed.
TEST_F(CcPaceCore, TimeoutHalvesTheRateThatWasInUseLately) {
  acknowledge_round_trips(Duration(), 20);
  acknowledge(kRoundTrip / kPackets);
  core_.on_timeout(0.01 * kLine);
  EXPECT_NEAR(core_.rate(), kLine / 2, 1);
  CoreLimit slow(environment(), kConstants);
  slow.on_timeout(0.1 * kLine);
  EXPECT_NEAR(slow.rate(), 0.05 * kLine, 1);
}

TEST_F(CcPaceCore, ResumeRestoresTheRateBeforeARestart) {
  acknowledge_round_trips(Duration(), 20);
  core_.restart(2 * kLine);
  EXPECT_EQ(core_.rate(), kLine) << "a restart does not raise the rate";
  core_.restart(0.1 * kLine);
  EXPECT_EQ(core_.rate(), 0.1 * kLine);
  core_.resume();
  EXPECT_EQ(core_.rate(), kLine);
  core_.restart(0.5 * kLine);
  core_.restart(0.4 * kLine);
  acknowledge_round_trips(Duration(), 20);
  core_.resume();
  EXPECT_EQ(core_.rate(), kLine) << "the rate has grown since the restart";
}

// Hosts may be in different regions. A shorter round trip that is assumed would keep the window too
// small until the least one is forgotten.
TEST_F(CcPaceCore, WhereNoRoundTripIsKnownTheFirstOneCounts) {
  FlowEnvironment unknown = environment();
  unknown.base_rtt = Duration();
  CoreLimit core(unknown, kConstants);
  core.on_ack(now_, {.rtt = Duration::from_ms(20), .acked = kMtu, .sent = sent_}, core.rate());
  EXPECT_EQ(core.base_rtt(), Duration::from_ms(20));
  core.on_ack(now_, {.rtt = Duration::from_ms(19), .acked = kMtu, .sent = sent_}, core.rate());
  EXPECT_EQ(core.base_rtt(), Duration::from_ms(19));
}

// After a cable failure all packets take a longer path. They no longer count as late once it is the
// base.
TEST_F(CcPaceCore, LongerPathBecomesTheBaseRoundTrip) {
  acknowledge_round_trips(Duration(), 20);
  acknowledge_round_trips(Duration::from_us(30), 1);
  now_ = now_ + Duration::from_ms(1100);
  acknowledge_round_trips(Duration::from_us(30), 20);
  now_ = now_ + Duration::from_ms(1100);
  acknowledge_round_trips(Duration::from_us(30), 60);
  EXPECT_EQ(core_.base_rtt(), kRoundTrip + Duration::from_us(30));
  EXPECT_EQ(core_.rate(), kLine);
}

// A cut while the receiver was late stays in force when the receiver is back.
TEST_F(CcPaceCore, CutSinceARestartOutlastsTheResume) {
  acknowledge_round_trips(Duration(), 20);
  core_.restart(0.8 * kLine);
  ASSERT_LT(until_cut(), 1000);
  acknowledge_round_trips(Duration(), 1);  // the temporary part of the cut ends
  const double cut = core_.rate();
  core_.resume();
  EXPECT_EQ(core_.rate(), cut);
  core_.restart(0.1 * kLine);
  core_.resume();
  EXPECT_EQ(core_.rate(), cut) << "a second resume restores the cut rate, not the first one";

  core_.restart(0.1 * kLine);
  core_.on_timeout(0.1 * kLine);
  core_.resume();
  EXPECT_LT(core_.rate(), 0.1 * kLine);
}

}  // namespace
}  // namespace pacecar::core_test
