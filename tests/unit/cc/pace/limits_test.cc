// LinkEstimate: the rate of the receiving link that can be granted, with other traffic and
// queues.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "cc/pace/link_estimate.h"
#include "cc/pace/receiver.h"

namespace pacecar::limits_test {
namespace {

constexpr double kLine = 400e9;
constexpr Duration kRoundTrip = Duration::from_us(8);
constexpr Bytes kPacket = 4160;
constexpr FlowEnvironment kLink{.line_rate = Rate::from_gbps(400), .mtu = 4096, .overhead = 64};
constexpr PaceConstants kConstants;

class CcPaceAvailable : public ::testing::Test {
 protected:
  // Packets at `gbps` for some round trips, all with the delay `excess`.
  void arrive(double gbps, bool covered, Duration excess, int round_trips = 1) {
    const auto gap = Duration::from_ns(static_cast<int64_t>(kPacket * 8 / gbps));
    for (const Instant end = now_ + kRoundTrip * round_trips; now_ < end; now_ = now_ + gap) {
      estimate_.on_arrival(now_, kPacket, covered, excess, /*flow=*/0);
    }
  }
  // A covered and an uncovered stream at the same time.
  void share(double own_gbps, double foreign_gbps, Duration excess, int round_trips) {
    double own = 0;
    for (const Instant end = now_ + kRoundTrip * round_trips; now_ < end;) {
      own += own_gbps / (own_gbps + foreign_gbps);
      const bool covered = own >= 1;
      if (covered) own -= 1;
      estimate_.on_arrival(now_, kPacket, covered, excess, /*flow=*/0);
      const double ns = kPacket * 8 / (own_gbps + foreign_gbps);
      now_ = now_ + Duration::from_ns(static_cast<int64_t>(ns));
    }
  }

  // What two flows can be granted less than on an empty link: for traffic that no grant covers, and
  // to drain a queue.
  double withheld() const { return kConstants.shared * estimate_.line() - estimate_.available(2); }

  LinkEstimate estimate_{kLink, kRoundTrip, kConstants};
  Instant now_ = Instant::from_ns(1'000'000'000);
  static constexpr Duration kQueue = Duration::from_us(5);
};

TEST_F(CcPaceAvailable, OneFlowGetsTheLinkAndSeveralShareALittleLess) {
  EXPECT_EQ(estimate_.available(1), kLine);
  EXPECT_EQ(estimate_.available(2), kConstants.shared * kLine);
  arrive(390, true, Duration(), 10);
  EXPECT_EQ(estimate_.available(2), kConstants.shared * kLine)
      << "traffic of granted flows is not subtracted";
}

TEST_F(CcPaceAvailable, UncoveredTrafficIsSubtracted) {
  share(250, 100, Duration(), 20);
  EXPECT_NEAR(estimate_.available(2), kConstants.shared * kLine - 100e9, 5e9);
}

TEST_F(CcPaceAvailable, ArrivalRateUnderAQueueIsTheLinkRate) {
  arrive(200, true, kQueue, 6);
  EXPECT_LT(estimate_.available(2), 205e9);
  EXPECT_EQ(withheld(), 0) << "no queue is drained besides";
}

// Senders that can use no more than arrives are limited by the core, which has the queue.
TEST_F(CcPaceAvailable, QueueDoesNotCountWhenSendersCanUseLessThanTheLink) {
  estimate_.set_use(200e9, 1);
  arrive(200, true, kQueue, 12);
  EXPECT_EQ(estimate_.line(), kLine);
  estimate_.set_use(390e9, 1);
  arrive(200, true, kQueue, 12);
  EXPECT_LT(estimate_.line(), 205e9);
}

TEST_F(CcPaceAvailable, HalfUsedLinkWithoutAQueueKeepsItsCapacity) {
  arrive(200, true, Duration(), 20);
  EXPECT_EQ(estimate_.available(2), kConstants.shared * kLine);
}

TEST_F(CcPaceAvailable, UncoveredTrafficDecaysAfterItEnds) {
  share(250, 100, Duration(), 20);
  double before = withheld();
  for (int i = 0; i < 64; ++i) {
    arrive(250, true, Duration(), 1);
    EXPECT_LE(withheld(), before);
    before = withheld();
  }
  EXPECT_LT(before, 5e9);
}

TEST_F(CcPaceAvailable, LongSilenceClearsUncoveredTraffic) {
  share(250, 100, Duration(), 20);
  now_ = now_ + Duration::from_s(10);
  arrive(250, true, Duration(), 100);
  EXPECT_LT(withheld(), 1e9);
}

TEST_F(CcPaceAvailable, StandingQueueIsDrained) {
  arrive(399, true, kQueue, 3);
  const double empty = kConstants.shared * kLine;
  const double drain = kLine * kQueue.us() / (kConstants.drain_round_trips * kRoundTrip.us());
  EXPECT_LT(estimate_.available(2), empty - 0.7 * drain);
  EXPECT_GT(estimate_.available(2), empty - 1.1 * drain - 0.05 * kLine);
  arrive(390, true, Duration(), 40);
  EXPECT_NEAR(estimate_.available(2), empty, 0.01 * kLine);
}

// A packet without delay shows that the last hop has no queue: the others were delayed elsewhere.
TEST_F(CcPaceAvailable, DelaysOfSomePacketsAreNotTakenForAQueue) {
  for (int i = 0; i < 200; ++i) {
    arrive(300, true, kQueue, 1);
    estimate_.on_arrival(now_, kPacket, true, Duration(), /*flow=*/0);
  }
  EXPECT_EQ(estimate_.available(2), kConstants.shared * kLine);
}

TEST_F(CcPaceAvailable, GrantedFlowsKeepALeastShareAgainstOthers) {
  share(10, 390, Duration(), 20);
  EXPECT_GE(estimate_.available(2), 0.99 * kConstants.least_share * kLine);
  share(10, 390, Duration::from_ms(1), 20);
  EXPECT_GE(estimate_.available(2), 0.99 * kConstants.least_share * kLine)
      << "however long the queue";
}

// Others that send little do not cause the queue.
TEST_F(CcPaceAvailable, QueueIsDrainedBelowTheLeastShareWhenOthersSendLittle) {
  share(310, 60, Duration::from_us(60), 20);
  EXPECT_LT(estimate_.available(2), 0.9 * kConstants.least_share * kLine);
  EXPECT_GT(estimate_.available(2), 0.3 * kLine);
}

TEST_F(CcPaceAvailable, FourPacketsOfDelayAreNoQueue) {
  const Duration packet = kLink.line_rate.time_for(kPacket);
  arrive(390, true, packet * 4, 10);
  EXPECT_EQ(withheld(), 0);
  arrive(390, true, packet * 5, 10);
  EXPECT_GT(withheld(), 0);
}

TEST_F(CcPaceAvailable, FewPacketsOnASlowLinkDoNotShowAQueue) {
  LinkEstimate slow({.line_rate = Rate::from_gbps(1), .mtu = 4096, .overhead = 64}, kRoundTrip,
                    kConstants);
  for (int i = 0; i < 200; ++i) {
    now_ = now_ + Duration::from_us(34);
    const Duration late = i % 12 == 0 ? Duration() : Duration::from_us(300);
    slow.on_arrival(now_, kPacket, true, late, /*flow=*/0);
    EXPECT_EQ(slow.available(2), kConstants.shared * 1e9);
  }
}

TEST_F(CcPaceAvailable, OnArrivalReportsEveryChangeOfTheRate) {
  double known = estimate_.available(2);
  int changes = 0;
  for (int i = 0; i < 5000; ++i) {
    now_ = now_ + Duration::from_ns(166);
    const bool covered = i % 3 > 0 || i > 2000;
    const Duration late = i > 1000 ? kQueue : Duration();
    const bool changed = estimate_.on_arrival(now_, kPacket, covered, late, /*flow=*/0);
    EXPECT_TRUE(changed || estimate_.available(2) == known) << i;
    known = estimate_.available(2);
    changes += changed ? 1 : 0;
  }
  EXPECT_LT(known, 0.7 * kLine);
  EXPECT_LT(changes, 300) << "about once in a round trip";
}

TEST(CcPaceAvailableJitter, JitterOfHostsIsNoQueue) {
  FlowEnvironment link = kLink;
  link.jitter = Duration::from_us(10);
  LinkEstimate estimate(link, kRoundTrip, kConstants);
  Instant now = Instant::from_ns(1'000'000'000);
  for (int i = 0; i < 10'000; ++i) {
    now = now + Duration::from_ns(160);
    estimate.on_arrival(now, kPacket, true, Duration::from_us(9), /*flow=*/0);
  }
  EXPECT_EQ(estimate.available(2), kConstants.shared * kLine);
}

// Its arrivals do not count as foreign traffic, which would reduce its own grant.
TEST(CcPaceCovered, ArrivalsOfAFlowWhoseDemandWasLostAreCovered) {
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
    receiver.on_arrival(now, 0, 4096, {1000, 4096});
    receiver.poll_grants(now, grants);
  }
  receiver.on_demand(now, 0, {.usable = Rate::from_gbps(400), .wanted = 1 << 30, .epoch = 1});
  now = now + Duration::from_us(5);
  receiver.poll_grants(now, grants);
  EXPECT_GE(receiver.grant(0).rate, Rate::from_gbps(390));
}

// Half of the link's rate arrives 0.5 ms late, which means little to hosts that are 10 ms apart.
TEST(CcPaceFarAway, DelaysCountByTheMeasuredRoundTrip) {
  const FlowEnvironment link{.line_rate = Rate::from_gbps(1), .mtu = 4096, .burst_bytes = 4096};
  std::array<GrantUpdate, 4> grants;
  for (const bool measured : {false, true}) {
    PaceReceiver receiver(link, 1);
    Instant now = Instant::from_ns(1'000'000'000);
    double least = 1;
    receiver.add_flow(now, 0);
    if (measured) receiver.on_round_trip(Duration::from_ms(10));
    receiver.on_posted(now, 0, 1 << 30);
    receiver.on_demand(now, 0, {.usable = Rate::from_gbps(1), .wanted = 1 << 30, .epoch = 1});
    for (int packets = 0; packets < 1000; ++packets, now = now + Duration::from_us(66)) {
      receiver.on_arrival(now, 0, 4096, {packets < 200 ? 1000U : 501'000U, 4096});
      receiver.poll_grants(now, grants);
      least = std::min(least, receiver.grant(0).rate.gbps());
    }
    if (measured) {
      EXPECT_GT(least, 0.8) << "a queue is drained, but the link is not doubted";
      EXPECT_GT(receiver.grant(0).rate.gbps(), 0.9);
    } else {
      EXPECT_LT(least, 0.6);
    }
  }
}

// A flow that is granted `busy` does not begin at the line rate behind a queue.
TEST(CcPaceBusy, IdleFlowsGrantShowsWhetherTheLinkStaysBusy) {
  PaceReceiver receiver({.line_rate = Rate::from_gbps(400),
                         .mtu = 4096,
                         .overhead = 64,
                         .burst_bytes = 4096,
                         .base_rtt = kRoundTrip},
                        2);
  constexpr uint32_t kActive = 0;
  constexpr uint32_t kIdle = 1;
  std::array<GrantUpdate, 4> words;
  std::array<bool, 2> busy{};  // in each flow's newest grant
  Instant now = Instant::from_ns(1'000'000'000);
  const auto run = [&](Duration span) {
    for (const Instant end = now + span; now < end; now = now + Duration::from_ns(500)) {
      const size_t count = receiver.poll_grants(now, words);
      for (size_t i = 0; i < count; ++i) busy[words[i].flow] = words[i].grant.busy;
    }
  };
  const auto demand = [&](Bytes wanted, uint16_t epoch) {
    receiver.on_demand(now, kActive,
                       {.usable = Rate::from_gbps(400), .wanted = wanted, .epoch = epoch});
  };
  receiver.add_flow(now, kActive);
  receiver.add_flow(now, kIdle);
  receiver.on_posted(now, kIdle, 1 << 20);
  receiver.on_posted(now, kActive, 1 << 30);
  demand(1 << 30, 1);
  run(kRoundTrip / 2);
  demand((1 << 30) - 4096, 2);
  run(kRoundTrip / 4);
  EXPECT_FALSE(busy[kIdle]);
  run(kRoundTrip);
  demand((1 << 30) - 8192, 3);
  run(kRoundTrip);
  EXPECT_TRUE(busy[kIdle]);
  EXPECT_FALSE(busy[kActive]);
  demand(0, 4);
  run(kRoundTrip * 4);
  EXPECT_FALSE(busy[kIdle]);
}

}  // namespace
}  // namespace pacecar::limits_test
