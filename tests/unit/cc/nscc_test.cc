// The rules of nscc one by one, with the figures of the reference simulator for a 400 Gb/s fabric
// with a round trip of 8.337 us and packets of 4150 bytes on the wire.
#include "cc/nscc.h"

#include <gtest/gtest.h>

#include "tests/support/cc_script.h"
#include "tests/support/golden.h"

namespace pacecar::nscc_test {
namespace {

constexpr Bytes kMtu = 4086;
constexpr double kPacket = 4150;
constexpr int64_t kBaseNs = 8337;
constexpr double kLargest = 625'284;
constexpr double kFair = 56'776;
constexpr double kSteady = 1'703;

FlowEnvironment fabric(bool trimming) {
  return {.line_rate = Rate::from_gbps(400),
          .mtu = kMtu,
          .overhead = 64,
          .burst_bytes = kMtu,
          .base_rtt = Duration::from_ns(kBaseNs),
          .trimming = trimming};
}

class CcNscc : public ::testing::Test {
 protected:
  void wait_us(int64_t us) { now_ = now_ + Duration::from_us(us); }
  // One acknowledgement of `packets`; returns the change of the window on the wire.
  double ack(int64_t delay_ns, bool marked, Bytes packets = 1) {
    return ack_round_trip(kBaseNs + delay_ns, marked, packets);
  }
  double ack_round_trip(int64_t rtt_ns, bool marked, Bytes packets) {
    const double before = nscc_.window();
    FlowSignal sample{
        .rtt = Duration::from_ns(rtt_ns), .acked = packets * kMtu, .in_flight = in_flight_ * kMtu};
    sample.echo_marked = marked;
    nscc_.on_ack(now_, sample);
    return nscc_.window() - before;
  }
  double lose(LossKind kind, Bytes packets = 1) {
    const double before = nscc_.window();
    nscc_.on_loss(now_, {.kind = kind, .lost = packets * kMtu, .in_flight = in_flight_ * kMtu});
    return nscc_.window() - before;
  }
  // Brings the window down to about `packets` packets, and leaves no increase pending.
  void shrink_to(Bytes packets) {
    lose(LossKind::kMissing, static_cast<Bytes>(nscc_.window() / kPacket) - packets);
    ack(0, true, 0);
    wait_us(1);
  }

  NsccController nscc_{fabric(true)};
  Instant now_ = Instant::from_ns(1'000'000'000);
  Bytes in_flight_ = 10;  // packets
};

TEST_F(CcNscc, StartsWithTheLargestWindow) {
  EXPECT_NEAR(nscc_.window(), kLargest, 10);
  const FlowLimits d = nscc_.decide(now_);
  EXPECT_EQ(d.rate, Rate::from_gbps(400)) << "paced at the line rate";
  EXPECT_EQ(d.limited_by, LimitedBy::kLine);
  EXPECT_NEAR(static_cast<double>(d.window), kLargest * 4086 / 4150, 10) << "payload";
  ack(0, false, 100);
  EXPECT_NEAR(nscc_.window(), kLargest, 10) << "the window never grows beyond the largest";
}

TEST_F(CcNscc, TargetDelayDependsOnTrimming) {
  EXPECT_NEAR(nscc_.target_delay_ns(), 6252.8, 0.2);
  EXPECT_NEAR(NsccController(fabric(false)).target_delay_ns(), 8337, 0.2);
}

TEST_F(CcNscc, UnmarkedLateAckGivesTheFairIncrease) {
  shrink_to(2);
  const double window = nscc_.window();
  wait_us(9);
  EXPECT_NEAR(ack(18'570, false), kFair * kPacket / window + kSteady, 2);
}

TEST_F(CcNscc, UnmarkedTimelyAckGrowsTheWindowByDistanceToTarget) {
  shrink_to(20);
  for (const int64_t delay : {6'000, 3'126, 1'000}) {
    wait_us(9);
    const double window = nscc_.window();
    const double distance = 1 - static_cast<double>(delay) / 6252.8;
    EXPECT_NEAR(ack(delay, false), 23'670 * distance * kPacket / window + kSteady, 2) << delay;
  }
}

TEST_F(CcNscc, OneWindowAlmostWithoutDelayStartsFastGrowth) {
  shrink_to(20);
  const auto packets = static_cast<Bytes>(nscc_.window() / kPacket);
  const double slow = ack(999, false, packets - 1);
  EXPECT_NEAR(slow, 23'670 * (1 - 999 / 6252.8), 1100) << "the increase of any short delay";
  ack(999, false, 10);
  EXPECT_NEAR(ack(999, false), 0.695 * kPacket, 2);
  EXPECT_EQ(ack(1'000, false), 0) << "one ack with a delay ends fast growth";
  EXPECT_EQ(ack(999, false), 0);
}

TEST_F(CcNscc, ADelayOrADecreaseEndsFastGrowth) {
  for (const bool marked : {false, true}) {
    shrink_to(20);
    ack(999, false, 100);
    EXPECT_GT(ack(999, false), 0.6 * kPacket) << "the window grows fast";
    wait_us(9);
    ack(marked ? 12'000 : 1'000, marked);
    EXPECT_EQ(ack(999, false), 0) << "fast growth needs another window without delay";
    wait_us(9);
  }
}

TEST_F(CcNscc, MarkedLateAcksDecreaseOncePerRoundTripByTheAverage) {
  // The average has to pass the target first.
  int acks = 0;
  while (ack(12'000, true) == 0) ++acks;
  EXPECT_NEAR(acks, 58, 1) << "1 - 0.9875^n = 6252.8 / 12000";
  const double average = nscc_.average_delay_ns();
  EXPECT_NEAR(nscc_.window(), kLargest * (1 - 0.8 * (average - 6252.8) / average), 20);
  wait_us(8);
  EXPECT_EQ(ack(12'000, true), 0);
  wait_us(1);
  EXPECT_LT(ack(12'000, true), -1000);
}

TEST_F(CcNscc, OneDecreaseTakesAtMostHalfOfTheWindow) {
  for (int i = 0; i < 30; ++i) ack(200'000, true);
  wait_us(9);
  const double before = nscc_.window();
  ack(200'000, true, 1);
  EXPECT_NEAR(nscc_.window(), before / 2 + kSteady, 2);
}

TEST_F(CcNscc, MarkedTimelyAcksAddOnlyTheSteadyIncrease) {
  shrink_to(20);
  wait_us(9);
  EXPECT_NEAR(ack(1'000, true, 100), kSteady, 1) << "only the steady increase";
}

TEST_F(CcNscc, IncreasesAreAppliedEveryEightPacketsOrRoundTrip) {
  shrink_to(20);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(ack(3'000, false), 0) << i;
  EXPECT_GT(ack(3'000, false), 100);
  EXPECT_EQ(ack(3'000, false), 0);
  wait_us(9);
  EXPECT_GT(ack(3'000, true), kSteady) << "the collected increases and the steady one";
  wait_us(8);
  EXPECT_EQ(ack(3'000, true), 0);
}

TEST_F(CcNscc, TrimmedPacketsCostTheirSize) {
  for (int i = 0; i < 10; ++i) EXPECT_EQ(lose(LossKind::kTrimmed), -kPacket);
  EXPECT_NEAR(nscc_.average_delay_ns(), kBaseNs * 0.1182, 1) << "each counts as one round trip";
  lose(LossKind::kTrimmed, 1000);
  EXPECT_EQ(nscc_.window(), kPacket) << "the least";
}

TEST_F(CcNscc, QuickAdaptSetsTheWindowToTheBytesOfThePeriod) {
  ack(0, false);
  wait_us(14);
  ack(0, false, 5);
  wait_us(1);
  in_flight_ = 29;  // after this one
  EXPECT_LT(lose(LossKind::kTrimmed), -kPacket * 100);
  EXPECT_NEAR(nscc_.window(), 5 * kPacket, 1);
  // Packets that were in flight at the change are not judged.
  EXPECT_EQ(lose(LossKind::kTrimmed, 10), 0);
  EXPECT_EQ(ack(20'000, true, 9), 0);
  EXPECT_EQ(lose(LossKind::kTrimmed, 10), 0);
  EXPECT_EQ(lose(LossKind::kTrimmed, 1), -kPacket) << "all 30 are acknowledged or lost";
}

TEST_F(CcNscc, QuickAdaptMayRepeatWhileSettlingIfUnmarked) {
  ack(0, false);
  wait_us(15);
  lose(LossKind::kTrimmed);
  ASSERT_EQ(nscc_.window(), kPacket);
  lose(LossKind::kTrimmed);  // requests another quick adapt
  wait_us(14);
  ack(20'000, false, 8);
  wait_us(1);
  const double before = nscc_.window();
  ack(20'000, false, 1);
  EXPECT_NEAR(nscc_.window(), 9 * kPacket, 1)
      << "quick adapt may also raise the window, from " << before;
}

TEST_F(CcNscc, QuickAdaptAnswersATrimmedPacketOnce) {
  ack(0, false);
  wait_us(15);
  lose(LossKind::kTrimmed);
  ASSERT_EQ(nscc_.window(), kPacket);
  wait_us(15);
  ack(8'000, false, 3);
  EXPECT_GT(nscc_.window(), 10 * kPacket) << "not the 3 packets of this period";
}

TEST_F(CcNscc, QuickAdaptNeedsCongestionAndAStarvedFlow) {
  ack(0, false);
  wait_us(15);
  EXPECT_GE(ack(25'000, false), 0) << "four targets are not more than four targets";
  wait_us(15);
  EXPECT_LT(ack(25'100, false), -kPacket * 100);
  NsccController other(fabric(true));
  std::swap(nscc_, other);
  ack(0, false);
  wait_us(14);
  ack(0, false, 19);  // 78,160 bytes are an eighth of the largest window
  wait_us(1);
  EXPECT_EQ(lose(LossKind::kTrimmed), -kPacket);
}

TEST_F(CcNscc, MissingPacketsCostTheirSizeWithoutQuickAdapt) {
  ack(0, false);
  wait_us(15);
  EXPECT_EQ(lose(LossKind::kMissing, 3), -3 * kPacket);
}

TEST_F(CcNscc, AckWithoutARoundTripUsesTheAverageDelay) {
  for (int i = 0; i < 100; ++i) ack(12'000, true);
  const double average = nscc_.average_delay_ns();
  ASSERT_GT(average, nscc_.target_delay_ns());
  wait_us(30);
  EXPECT_LT(ack_round_trip(0, true, 20), 0) << "late by the average";
  EXPECT_EQ(nscc_.average_delay_ns(), average) << "the ack is no sample of the average";
}

TEST_F(CcNscc, DelayOfAnUnmarkedLateAckHardlyMovesTheAverage) {
  ack(20'000, false);
  EXPECT_NEAR(nscc_.average_delay_ns(), 0.0125 * kBaseNs / 4, 0.1);
}

TEST_F(CcNscc, ShorterPathHasASmallerLargestWindow) {
  nscc_.on_loss(now_, {.kind = LossKind::kTrimmed, .rtt = Duration::from_ns(8255)});
  EXPECT_NEAR(nscc_.window(), 619'125, 50);
  ack_round_trip(4169, false, 1);
  EXPECT_NEAR(nscc_.window(), 312'642, 50);
  EXPECT_NEAR(nscc_.target_delay_ns(), 6252.8, 0.2) << "the target stays";
}

TEST(CcNsccTrace, Course) {
  NsccController nscc(fabric(true));
  test::CcScript s(nscc, kMtu);
  const auto words = [&](int count, int64_t delay_us, bool marked) {
    FlowSignal sample{.rtt = Duration::from_ns(kBaseNs + delay_us * 1000)};
    sample.echo_marked = marked;
    for (int i = 0; i < count; ++i) {
      s.wait(Duration::from_us(1))
          .ack(fmt::format("delay={}us{}", delay_us, marked ? " mark" : ""), 4, sample);
    }
  };
  s.note("a burst fills the queue, and some of it is trimmed");
  words(3, 4, true);
  for (int i = 0; i < 6; ++i) s.wait(Duration::from_us(1)).trim();
  s.note("little arrives: quick adapt");
  s.wait(Duration::from_us(12)).trim().wait(Duration::from_us(1));
  words(4, 9, true);
  s.note("the queue is gone: fair increase, then the distance to the target");
  words(6, 9, false);
  words(6, 2, false);
  s.note("an empty path");
  words(12, 0, false);
  s.note("a standing queue");
  words(80, 10, true);
  s.note("timeouts");
  for (int i = 0; i < 3; ++i) s.wait(Duration::from_us(10)).loss();
  s.timeout();
  test::expect_golden("cc/nscc.txt", s.text());
}

}  // namespace
}  // namespace pacecar::nscc_test
