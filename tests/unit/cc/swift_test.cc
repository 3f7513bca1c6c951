// Swift's law, in golden traces where the whole course matters and in single checks elsewhere.
#include "cc/swift.h"

#include <gtest/gtest.h>

#include "tests/support/cc_script.h"
#include "tests/support/golden.h"

namespace pacecar::swift_test {
namespace {

using test::CcScript;
using test::expect_golden;

constexpr Bytes kMtu = 4096;

FlowEnvironment software_nic() {
  return {.line_rate = Rate::from_gbps(100), .mtu = kMtu, .burst_bytes = 15 * kMtu, .base_rtt = {}};
}

FlowEnvironment fabric() {
  return {.line_rate = Rate::from_gbps(400),
          .mtu = kMtu,
          .burst_bytes = kMtu,
          .base_rtt = Duration::from_us(8)};
}

FlowSignal ack(Duration rtt, Bytes packets) {
  return {.rtt = rtt, .acked = packets * kMtu, .in_flight = packets * kMtu};
}

TEST(CcSwift, RampsUpThenHoldsTheTarget) {
  SwiftController swift(software_nic());
  CcScript s(swift, kMtu);
  s.note("doubles per round trip until the delay reaches the target");
  s.ack(60, 120).ack(80, 240).ack(150, 480);
  s.note("over the target: proportional decrease, at most once per round trip, at most one half");
  s.ack(300, 480).ack_at_once(300, 10).ack(320, 350).ack(4000, 300);
  s.note("under it: one packet per round trip, whatever the number of acknowledgements");
  s.ack(80, 150).ack(80, 150).ack(80, 75).ack_at_once(80, 75);
  s.note("a window that is used by less than half, or no usable round trip: no change");
  s.ack(80, 50).ack_at_once(0, 100);
  expect_golden("cc/swift_ramp.txt", s.text());
}

TEST(CcSwift, RateFallsOnLossAndTimeouts) {
  SwiftController swift(fabric());
  CcScript s(swift, kMtu);
  s.ack(9, 100);
  s.note("without a queue the first few losses are forgiven");
  for (int i = 0; i < 5; ++i) s.loss();
  s.note("more than 5% are not; several losses of one target delay count once");
  s.loss().loss().wait(Duration::from_us(35)).loss();
  s.note("timeouts in a row; the fifth resets the window");
  for (int i = 0; i < 5; ++i) s.wait(Duration::from_us(100)).timeout();
  s.note("an acknowledgement ends the row, and below one packet each one counts in full");
  s.ack(9, 1).ack(9, 1).ack(9, 1).timeout();
  expect_golden("cc/swift_loss.txt", s.text());
}

TEST(CcSwift, ObeysGrants) {
  SwiftController swift(fabric());
  CcScript s(swift, kMtu);
  const auto none = Duration();
  const auto v = Duration::from_us(100);
  s.grant(Rate::from_gbps(50), Duration::from_us(3), v, 65535);
  s.note("the same epoch again does not wait again; an older one is ignored");
  s.wait(Duration::from_us(10)).grant(Rate::from_gbps(50), Duration::from_us(3), v, 65535);
  s.grant(Rate::from_gbps(400), none, v, 65534);
  s.note("newer, across the wrap");
  s.grant(Rate::from_gbps(100), none, v, 0);
  s.note("no news for longer than the validity: half as much per period, down to line rate / 256");
  for (int i = 0; i < 7; ++i) s.wait(Duration::from_us(99)).look();
  s.wait(Duration::from_us(5000)).look();
  s.note("a lapsed grant gives way to any epoch; a larger one than the line does not limit");
  s.grant(Rate::from_gbps(800), none, v, 65000);
  expect_golden("cc/swift_grant.txt", s.text());
}

TEST(CcSwift, WindowBelowOnePacketIsPaced) {
  SwiftController swift(fabric());
  Instant now;
  const Duration rtt = Duration::from_us(100);
  for (int i = 0; i < 6; ++i) {
    now = now + rtt;
    swift.on_ack(now, ack(rtt, 1));
    now = now + rtt;
    swift.on_loss(now, {.lost = kMtu});
  }
  // The rate is the window over the newest round trip, so the flow slows down while packets queue.
  const Duration late = rtt * 5;
  swift.on_ack(now, ack(late, 0));
  const FlowLimits d = swift.decide(now);
  ASSERT_LT(swift.cwnd_packets(), 1.0);
  EXPECT_EQ(d.window, kMtu) << "a packet must always fit";
  const double per_round_trip = static_cast<double>(d.rate.bytes_in(late)) / kMtu;
  EXPECT_NEAR(per_round_trip, swift.cwnd_packets(), 1e-3)
      << "one round trip at this rate sends the window";
}

TEST(CcSwift, FewLossesWithoutAQueueKeepTheWindow) {
  SwiftController swift(fabric());
  Instant now;
  const auto round = [&](Duration rtt, int lost) {
    now = now + rtt;
    swift.on_ack(now, ack(rtt, 100));
    for (int i = 0; i < lost; ++i) swift.on_loss(now, {.lost = kMtu});
  };
  const Duration empty = Duration::from_us(8);
  for (int i = 0; i < 50; ++i) round(empty, 0);
  const double before = swift.cwnd_packets();
  for (int i = 0; i < 50; ++i) round(empty, 3);
  EXPECT_EQ(swift.cwnd_packets(), before) << "3% of the packets, as a bad cable loses them";
  round(Duration::from_us(40), 1);
  EXPECT_LT(swift.cwnd_packets(), before) << "one loss behind a queue counts";
  const double after = swift.cwnd_packets();
  for (int i = 0; i < 50; ++i) round(empty, 10);
  EXPECT_LT(swift.cwnd_packets(), after) << "10% are more than a cable loses";
}

TEST(CcSwift, DoesNotRaiseAnUnusedWindow) {
  SwiftController swift(software_nic());
  const double before = swift.cwnd_packets();
  Instant now;
  for (int i = 0; i < 100; ++i) {
    now = now + Duration::from_us(30);
    swift.on_ack(now, {.rtt = Duration::from_us(30), .acked = kMtu, .in_flight = kMtu});
  }
  EXPECT_EQ(swift.cwnd_packets(), before);
}

TEST(CcSwift, WindowIsAtMostTwiceTheTargetAtLineRate) {
  SwiftController swift(fabric());
  Instant now;
  for (int i = 0; i < 20; ++i) {
    now = now + Duration::from_us(8);
    swift.on_ack(now, ack(Duration::from_us(8), 1 << i));
  }
  EXPECT_EQ(swift.decide(now).window, Rate::from_gbps(400).bytes_in(Duration::from_us(66)));
}

TEST(CcSwift, TargetGrowsAsTheWindowShrinks) {
  SwiftController swift(fabric());
  swift.on_ack(Instant(), ack(Duration::from_us(8), 1));
  const Duration large = swift.target_delay();
  EXPECT_NEAR(large.us(), 33, 0.1) << "8 us and an allowance of 25 us";
  Instant now;
  for (int i = 0; i < 10; ++i) {
    now = now + Duration::from_us(50);
    swift.on_loss(now, {.lost = kMtu});
  }
  swift.on_ack(now, ack(Duration::from_us(8), 0));
  ASSERT_LT(swift.cwnd_packets(), kSwift.fs_min_cwnd);
  EXPECT_EQ(swift.target_delay(), Duration::from_us(8 + 25 * 2)) << "fs_range = 1 allowance";
}

TEST(CcSwift, TargetAllowsForBurstsOfTheNic) {
  FlowEnvironment environment = fabric();
  environment.burst_bytes = 64 * kMtu;
  environment.line_rate = Rate::from_gbps(100);
  const Duration four = environment.line_rate.time_for(4 * 64 * kMtu);
  EXPECT_EQ(SwiftController(environment).target_delay(), Duration::from_us(8) + four);
  environment.burst_bytes = 0;
  EXPECT_EQ(SwiftController(environment).decide(Instant()).window, 100'000U)
      << "a round trip's worth, of more than eight packets";
  environment.base_rtt = Duration::from_us(1);
  EXPECT_EQ(SwiftController(environment).decide(Instant()).window, 8 * kMtu);
}

// An acknowledgement or a loss ends a row of timeouts.
TEST(CcSwift, OnlyTimeoutsInARowResetTheWindow) {
  SwiftController swift(fabric());
  Instant now;
  const auto time_out = [&](int times) {
    for (int i = 0; i < times; ++i) {
      now = now + Duration::from_us(100);
      swift.on_timeout(now);
    }
  };
  swift.on_ack(now, ack(Duration::from_us(8), 100));
  time_out(4);
  swift.on_loss(now, {.lost = kMtu});
  time_out(4);
  EXPECT_GT(swift.cwnd_packets(), kSwift.min_cwnd);
  time_out(1);
  EXPECT_EQ(swift.cwnd_packets(), kSwift.min_cwnd);
}

// If a standing queue became the new base, the target would grow for ever.
TEST(CcSwift, StandingQueueDoesNotMoveTheTarget) {
  SwiftController swift(fabric());
  Instant now;
  swift.on_ack(now, ack(Duration::from_us(8), 100));
  const Duration before = swift.target_delay();
  for (int i = 0; i < 300'000; ++i) {
    now = now + Duration::from_us(33);
    swift.on_ack(now, ack(before + Duration::from_us(i % 2 == 0 ? -1 : 5), 100));
  }
  EXPECT_LT(swift.target_delay(), before + Duration::from_us(2));
}

TEST(CcSwift, LongerPathBecomesTheBaseAfterASecond) {
  SwiftController swift(fabric());
  Instant now;
  swift.on_ack(now, ack(Duration::from_us(8), 100));
  for (int i = 0; i < 999; ++i) {
    now = now + Duration::from_ms(1);
    swift.on_ack(now, ack(Duration::from_us(i % 2 == 0 ? 900 : 500), 1));
  }
  EXPECT_LT(swift.target_delay(), Duration::from_us(500));
  now = now + Duration::from_ms(1);
  swift.on_ack(now, ack(Duration::from_us(500), 1));
  EXPECT_GT(swift.target_delay(), Duration::from_us(525)) << "the new base and its allowance";
  EXPECT_LE(swift.target_delay(), Duration::from_us(550))
      << "the base is the least round trip of that second";
  swift.on_ack(now, ack(Duration::from_us(8), 1));
  EXPECT_LT(swift.target_delay(), Duration::from_us(60)) << "a shorter path counts at once";
}

// After a stall of the end host the whole window is acknowledged late: one decrease, and no lower
// rate afterwards.
TEST(CcSwift, OneStallCostsOneHalving) {
  SwiftController swift(software_nic());
  Instant now;
  for (int i = 0; i < 20; ++i) {
    now = now + Duration::from_us(40);
    swift.on_ack(now, ack(Duration::from_us(40), 200));
  }
  const double before = swift.cwnd_packets();
  now = now + Duration::from_ms(4);
  for (int i = 0; i < 15; ++i) {
    now = now + Duration::from_us(5);
    swift.on_ack(now, ack(Duration::from_ms(4), 15));
  }
  EXPECT_DOUBLE_EQ(swift.cwnd_packets(), before / 2);
  EXPECT_GT(swift.decide(now).rate, Rate::from_gbps(50));
}

}  // namespace
}  // namespace pacecar::swift_test
