// What `pace` takes the receiving link (LinkCapacity) and the core (CoreLimit) to carry.
#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "cc/pace/core_limit.h"
#include "cc/pace/link_capacity.h"
#include "cc/pace/receiver.h"

namespace pacecar {
namespace {

constexpr double kLine = 400e9;
constexpr Duration kRoundTrip = Duration::from_us(8);
constexpr Bytes kPacket = 4160;
constexpr FlowEnvironment kLink{.line_rate = Rate::from_gbps(400), .mtu = 4096, .overhead = 64};
constexpr PaceConstants kConstants;

// --- LinkCapacity ---

class CcPaceCapacity : public ::testing::Test {
 protected:
  // Packets at `gbps` for some round trips, all of them so late.
  void arrive(double gbps, bool covered, Duration excess, int round_trips = 1) {
    const auto gap = Duration::from_ns(static_cast<int64_t>(kPacket * 8 / gbps));
    for (const Instant end = now_ + kRoundTrip * round_trips; now_ < end; now_ = now_ + gap) {
      capacity_.on_arrival(now_, kPacket, covered, excess, /*overtaken=*/false);
    }
  }
  // Two streams at the same time.
  void share(double own_gbps, double foreign_gbps, Duration excess, int round_trips) {
    double own = 0;
    for (const Instant end = now_ + kRoundTrip * round_trips; now_ < end;) {
      own += own_gbps / (own_gbps + foreign_gbps);
      const bool covered = own >= 1;
      if (covered) own -= 1;
      capacity_.on_arrival(now_, kPacket, covered, excess, /*overtaken=*/false);
      const double ns = kPacket * 8 / (own_gbps + foreign_gbps);
      now_ = now_ + Duration::from_ns(static_cast<int64_t>(ns));
    }
  }

  LinkCapacity capacity_{kLink, kRoundTrip, Duration::from_ms(10), kConstants};
  Instant now_ = Instant::from_ns(1'000'000'000);
  static constexpr Duration kQueue = Duration::from_us(5);
};

TEST_F(CcPaceCapacity, OneFlowHasTheLinkSeveralShareALittleLess) {
  EXPECT_EQ(capacity_.available(1), kLine);
  EXPECT_EQ(capacity_.available(2), kConstants.shared * kLine);
  arrive(390, true, Duration(), 10);
  EXPECT_EQ(capacity_.available(2), kConstants.shared * kLine) << "traffic on grants counts not";
}

TEST_F(CcPaceCapacity, TrafficThatNoGrantCoversIsSubtracted) {
  share(250, 100, Duration(), 20);
  EXPECT_NEAR(capacity_.uncovered(), 100e9, 5e9);
  EXPECT_NEAR(capacity_.available(2), kConstants.shared * kLine - 100e9, 5e9);
}

TEST_F(CcPaceCapacity, WhatArrivesWhileAQueueStandsIsAllThatTheLinkGives) {
  arrive(200, true, kQueue, 6);
  EXPECT_LT(capacity_.available(2), 205e9);
  EXPECT_EQ(capacity_.uncovered(), 0);
}

// Senders that could use no more than that are held back by the core: its queues are their work.
TEST_F(CcPaceCapacity, AQueueBehindWhichLessIsUsableThanTheLinkGivesIsNotTheLinks) {
  capacity_.set_usable(200e9);
  arrive(200, true, kQueue, 12);
  EXPECT_EQ(capacity_.line(), kLine);
  capacity_.set_usable(390e9);
  arrive(200, true, kQueue, 12);
  EXPECT_LT(capacity_.line(), 205e9);
}

TEST_F(CcPaceCapacity, AHalfEmptyLinkWithoutAQueueHidesNothing) {
  arrive(200, true, Duration(), 20);
  EXPECT_EQ(capacity_.available(2), kConstants.shared * kLine);
}

TEST_F(CcPaceCapacity, ForgetsTrafficThatHasEnded) {
  share(250, 100, Duration(), 20);
  double before = capacity_.uncovered();
  for (int i = 0; i < 64; ++i) {
    arrive(250, true, Duration(), 1);
    EXPECT_LE(capacity_.uncovered(), before);
    before = capacity_.uncovered();
  }
  EXPECT_LT(before, 5e9);
}

TEST_F(CcPaceCapacity, ALongSilenceIsNoTraffic) {
  share(250, 100, Duration(), 20);
  now_ = now_ + Duration::from_s(10);
  arrive(250, true, Duration(), 100);
  EXPECT_LT(capacity_.uncovered(), 1e9);
}

TEST_F(CcPaceCapacity, AStandingQueueIsDrained) {
  arrive(399, true, kQueue, 3);
  const double empty = kConstants.shared * kLine;
  const double drain = kLine * kQueue.us() / (kConstants.drain_round_trips * kRoundTrip.us());
  EXPECT_LT(capacity_.available(2), empty - 0.7 * drain);
  EXPECT_GT(capacity_.available(2), empty - 1.1 * drain - 0.05 * kLine);
  arrive(390, true, Duration(), 40);
  EXPECT_NEAR(capacity_.available(2), empty, 0.01 * kLine);
}

// So many flows that each sends one packet in a dozen round trips: whether a queue stands shows
// when all have had their turn.
TEST_F(CcPaceCapacity, AQueueThatIsGoneOnceInATurnOfAllFlowsDoesNotStand) {
  capacity_.set_flows(1200);
  for (int i = 0; i < 10; ++i) {
    arrive(390, true, kQueue, 6);
    arrive(390, true, Duration(), 1);
  }
  EXPECT_EQ(capacity_.queue(), Duration());
  capacity_.set_flows(2);
  arrive(390, true, kQueue, 2);
  EXPECT_GT(capacity_.queue(), Duration());
}

// One packet that met no queue shows that the last hop has none: the others were late elsewhere.
TEST_F(CcPaceCapacity, DelaysOfSomePacketsAreNoQueueHere) {
  for (int i = 0; i < 200; ++i) {
    arrive(300, true, kQueue, 1);
    capacity_.on_arrival(now_, kPacket, true, Duration(), /*overtaken=*/false);
  }
  EXPECT_EQ(capacity_.queue(), Duration());
  EXPECT_EQ(capacity_.available(2), kConstants.shared * kLine);
}

TEST_F(CcPaceCapacity, FlowsOnGrantsKeepTheirPartAgainstOthers) {
  share(10, 390, Duration(), 20);
  EXPECT_GE(capacity_.available(2), 0.99 * kConstants.least_share * kLine);
  share(10, 390, Duration::from_ms(1), 20);
  EXPECT_GT(capacity_.available(2), 0.2 * kLine) << "however long the queue";
}

TEST(CcPaceCapacityJitter, WhatEndHostsAddByChanceIsNoQueue) {
  FlowEnvironment link = kLink;
  link.jitter = Duration::from_us(10);
  LinkCapacity capacity(link, kRoundTrip, Duration::from_ms(10), kConstants);
  Instant now = Instant::from_ns(1'000'000'000);
  for (int i = 0; i < 10'000; ++i) {
    now = now + Duration::from_ns(160);
    capacity.on_arrival(now, kPacket, true, Duration::from_us(9), /*overtaken=*/false);
  }
  EXPECT_EQ(capacity.available(2), kConstants.shared * kLine);
}

// Its arrivals are no foreign traffic, against which half of the link would have to be kept.
TEST(CcPaceCovered, AFlowWhoseDemandWasLostIsNotHeldAgainstItself) {
  PaceReceiver receiver({.line_rate = Rate::from_gbps(400),
                         .mtu = 4096,
                         .overhead = 64,
                         .burst_bytes = 4096,
                         .base_rtt = kRoundTrip},
                        1);
  std::array<GrantUpdate, 4> grants;
  Instant now = Instant::from_ns(1'000'000'000);
  receiver.add_flow(now, 0);
  receiver.on_posted(now, 0, 1 << 30);
  ASSERT_EQ(receiver.poll_grants(now, grants), 1U);
  ASSERT_EQ(grants[0].grant.rate, Rate::from_gbps(400));
  for (int packets = 0; packets < 1000; ++packets, now = now + Duration::from_ns(84)) {
    receiver.on_arrival(now, 0, 4096, 1000);
    receiver.poll_grants(now, grants);
  }
  receiver.on_demand(now, 0, {.usable = Rate::from_gbps(400), .wanted = 1 << 30, .epoch = 1});
  now = now + Duration::from_us(5);
  receiver.poll_grants(now, grants);
  EXPECT_GE(receiver.grant(0).rate, Rate::from_gbps(390));
}

// So that it does not begin at the line rate behind a queue.
TEST(CcPaceBusy, AnIdleFlowIsToldWhenALinkStaysInUseAndWhenItNoLongerIs) {
  PaceReceiver receiver({.line_rate = Rate::from_gbps(400),
                         .mtu = 4096,
                         .overhead = 64,
                         .burst_bytes = 4096,
                         .base_rtt = kRoundTrip},
                        2);
  constexpr uint32_t kActive = 0;
  constexpr uint32_t kIdle = 1;
  std::array<GrantUpdate, 4> words;
  std::array<bool, 2> busy{};  // as each flow's newest word said
  Instant now = Instant::from_ns(1'000'000'000);
  const auto run = [&](Duration span) {
    for (const Instant end = now + span; now < end; now = now + Duration::from_ns(500)) {
      const size_t count = receiver.poll_grants(now, words);
      for (size_t i = 0; i < count; ++i) busy[words[i].flow] = words[i].grant.busy;
    }
  };
  const auto say = [&](Bytes wanted, uint16_t epoch) {
    receiver.on_demand(now, kActive,
                       {.usable = Rate::from_gbps(400), .wanted = wanted, .epoch = epoch});
  };
  receiver.add_flow(now, kActive);
  receiver.add_flow(now, kIdle);
  receiver.on_posted(now, kIdle, 1 << 20);
  receiver.on_posted(now, kActive, 1 << 30);
  say(1 << 30, 1);
  run(kRoundTrip / 2);
  say((1 << 30) - 4096, 2);
  run(kRoundTrip / 4);
  EXPECT_FALSE(busy[kIdle]);
  run(kRoundTrip);
  say((1 << 30) - 8192, 3);
  run(kRoundTrip);
  EXPECT_TRUE(busy[kIdle]);
  EXPECT_FALSE(busy[kActive]);
  say(0, 4);
  run(kRoundTrip * 4);
  EXPECT_FALSE(busy[kIdle]);
}

// --- CoreLimit ---

class CcPaceCore : public ::testing::Test {
 protected:
  static constexpr int kPackets = 40;  // per round trip

  static FlowEnvironment environment(Duration jitter = {}) {
    return {.line_rate = Rate::from_gbps(400),
            .mtu = 4096,
            .overhead = 64,
            .burst_bytes = 4096,
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
    sent_ += 4096;
    core_.on_ack({.now = now_,
                  .rtt = kRoundTrip + delay,
                  .acked = 4096,
                  .in_flight = kPackets * 4096,
                  .sent = sent_},
                 core_.rate());
  }
  void hear(Duration delay, int round_trips = 1) {
    hear([=](int) { return delay; }, round_trips);
  }
  void lose(int packets, LossKind kind = LossKind::kMissing) {
    core_.on_loss({.now = now_,
                   .kind = kind,
                   .lost = static_cast<Bytes>(packets) * 4096,
                   .in_flight = kPackets * 4096,
                   .sent = sent_});
  }
  static Duration most_late(int i) { return i % 10 < 7 ? Duration::from_us(6) : Duration(); }
  static Duration some_late(int i) { return i % 10 < 3 ? Duration::from_us(6) : Duration(); }

  CoreLimit core_{environment(), kConstants};
  Bytes sent_ = kPackets * 4096;
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
      sent_ += 4096;
      const bool delayed = i % 10 < 7;
      core_.on_ack({.now = now_,
                    .rtt = kRoundTrip + (delayed ? Duration::from_ns(1800) : Duration()),
                    .acked = 4096,
                    .in_flight = kPackets * 4096,
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
  Bytes sent = kPackets * 4096;
  Instant now = now_;
  for (int i = 0; i < 100 * kPackets; ++i) {
    now = now + kRoundTrip / kPackets;
    sent += 4096;
    calm.on_ack({.now = now,
                 .rtt = kRoundTrip + most_late(i),
                 .acked = 4096,
                 .in_flight = kPackets * 4096,
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
}

TEST_F(CcPaceCore, ACutIsJudgedByWhatWasSentAfterIt) {
  hear(Duration(), 20);
  hear(most_late, 3);
  const double cut = core_.rate();
  ASSERT_LT(cut, 0.95 * kLine);
  hear(most_late, 1);
  EXPECT_EQ(core_.rate(), cut);
}

// What is lost was sent some time ago: what is acknowledged while a sender waits is no measure.
TEST_F(CcPaceCore, FewLossesAreFewAlsoWhileLittleIsAcknowledged) {
  hear(Duration(), 20);
  for (int i = 0; i < 200; ++i) {
    now_ = now_ + kRoundTrip / 10;
    sent_ += 4096;
    if (i % 10 == 0) lose(2);
    core_.on_ack(
        {.now = now_, .rtt = kRoundTrip, .acked = 4096, .in_flight = 10 * 4096, .sent = sent_},
        core_.rate());
  }
  EXPECT_EQ(core_.rate(), kLine);
}

TEST_F(CcPaceCore, ATimeoutHalves) {
  hear(Duration(), 20);
  core_.on_timeout(core_.rate());
  EXPECT_NEAR(core_.rate(), kLine / 2, 1);
  for (int i = 0; i < 100; ++i) core_.on_timeout(core_.rate());
  EXPECT_GE(core_.rate(), kLine / 256);
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

}  // namespace
}  // namespace pacecar
