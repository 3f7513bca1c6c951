#include "transport/base/pacer.h"

#include <gtest/gtest.h>

#include <utility>

namespace pacecar::pacer_test {
namespace {

constexpr Instant at(int64_t ns) { return Instant::from_ns(ns); }
constexpr Rate kByteEveryNs = Rate::from_gbps(8);

TEST(Pacer, NewPacerIsStopped) {
  const Pacer pacer(1000);
  EXPECT_EQ(pacer.next_send(), Instant::never());
  EXPECT_EQ(pacer.rate(), Rate());
}

TEST(Pacer, PacketsAreSpacedByTheirSize) {
  Pacer pacer(0);
  pacer.set_rate(kByteEveryNs, at(100));
  EXPECT_EQ(pacer.next_send(), at(100));
  pacer.on_sent(1500, at(100));
  EXPECT_EQ(pacer.next_send(), at(1600));
  pacer.on_sent(64, at(1600));
  EXPECT_EQ(pacer.next_send(), at(1664));
}

// 64 bytes at 400 Gb/s take 1.28 ns: 25 packets take 32 ns, not 25 or 50.
TEST(Pacer, FractionsOfANanosecondAreKept) {
  Pacer pacer(1000);
  pacer.set_rate(Rate::from_gbps(400), at(0));
  for (int i = 0; i < 25; ++i) pacer.on_sent(64, pacer.next_send());
  EXPECT_GE(pacer.next_send(), at(32));
  EXPECT_LE(pacer.next_send(), at(33));
}

TEST(Pacer, LateSenderCatchesUpOnlyWithinItsBound) {
  Pacer pacer(1000);
  pacer.set_rate(kByteEveryNs, at(0));
  pacer.on_sent(100, at(900));
  EXPECT_EQ(pacer.next_send(), at(100));  // late by less than the bound
  pacer.on_sent(100, at(50'000));
  EXPECT_EQ(pacer.next_send(), at(49'100));  // 1,000 bytes before now, and the packet
}

TEST(Pacer, ExcusedLatenessIsRepaidGradually) {
  Pacer pacer(2000);
  pacer.set_rate(kByteEveryNs, at(0));
  pacer.excuse(at(400), Duration::from_ns(100), Duration::from_ns(250));
  pacer.on_sent(800, at(400));
  EXPECT_EQ(pacer.next_send(), at(250 + 700));  // 250 ns excused of 400 - 100; 800 / 8 repaid
  pacer.on_sent(800, at(950));
  EXPECT_EQ(pacer.next_send(), at(1650));
  pacer.on_sent(800, at(1650));
  EXPECT_EQ(pacer.next_send(), at(2400));  // all repaid: three times 800
}

TEST(Pacer, HoldAndGraceAreNotExcused) {
  Pacer pacer(2000);
  pacer.set_rate(kByteEveryNs, at(0));
  pacer.hold_until(at(5000));
  pacer.excuse(at(5100), Duration::from_ns(100), Duration::from_us(1));
  pacer.on_sent(800, at(5100));
  EXPECT_EQ(pacer.next_send(), at(5800));
}

TEST(Pacer, NewRateKeepsBytesExcused) {
  Pacer pacer(2000);
  pacer.set_rate(kByteEveryNs, at(0));
  pacer.excuse(at(400), Duration(), Duration::from_us(1));  // 400 bytes
  pacer.set_rate(Rate::from_gbps(16), at(400));
  for (int i = 0; i < 10; ++i) pacer.on_sent(800, pacer.next_send());
  EXPECT_EQ(pacer.next_send(), at(400 + (8000 - 400) / 2));
}

TEST(Pacer, HoldStartsTheSchedule) {
  Pacer pacer(1000);
  pacer.set_rate(kByteEveryNs, at(0));
  pacer.hold_until(at(700));
  EXPECT_EQ(pacer.next_send(), at(700));
  pacer.on_sent(100, at(700));
  EXPECT_EQ(pacer.next_send(), at(800));  // nothing was earned before 700
}

TEST(Pacer, NewRateMayApplyFromTheNextPacket) {
  Pacer pacer(1000);
  pacer.set_rate(kByteEveryNs, at(0));
  pacer.on_sent(4000, at(0));
  pacer.set_rate(Rate::from_gbps(16), at(1000), Pacer::Change::kFromNextPacket);
  EXPECT_EQ(pacer.next_send(), at(4000));  // as with the old rate
  pacer.on_sent(4000, at(4000));
  EXPECT_EQ(pacer.next_send(), at(6000));
  pacer.set_rate(Rate(), at(5000), Pacer::Change::kFromNextPacket);
  EXPECT_EQ(pacer.next_send(), Instant::never());  // a stop takes effect at once
}

TEST(Pacer, NewRateKeepsBytesAheadOfTheSchedule) {
  Pacer pacer(1000);
  pacer.set_rate(kByteEveryNs, at(0));
  pacer.on_sent(4000, at(0));
  pacer.set_rate(Rate::from_gbps(16), at(1000));  // 3,000 bytes ahead of the schedule
  EXPECT_EQ(pacer.next_send(), at(2500));
  pacer.set_rate(Rate::from_gbps(4), at(1500));  // 2,000 bytes ahead
  EXPECT_EQ(pacer.next_send(), at(5500));
}

TEST(Pacer, NewRateKeepsBytesEarned) {
  Pacer pacer(1000);
  pacer.set_rate(kByteEveryNs, at(0));
  pacer.set_rate(Rate::from_gbps(4), at(600));  // 600 bytes earned
  EXPECT_EQ(pacer.next_send(), at(-600));
  pacer.set_rate(kByteEveryNs, at(10'000));  // more than the bound
  EXPECT_EQ(pacer.next_send(), at(9000));
}

TEST(Pacer, NewRateDoesNotMoveAHold) {
  Pacer pacer(1000);
  pacer.set_rate(kByteEveryNs, at(0));
  pacer.hold_until(at(5000));
  pacer.set_rate(Rate::from_gbps(1), at(1000));
  EXPECT_EQ(pacer.next_send(), at(5000));
}

TEST(Pacer, NewRateKeepsBytesEarnedSinceAHold) {
  for (const auto& [rate, next_send] :
       {std::pair{Rate::from_gbps(16), at(850)}, std::pair{Rate::from_gbps(4), at(400)}}) {
    Pacer pacer(1000);
    pacer.set_rate(kByteEveryNs, at(0));
    pacer.hold_until(at(700));
    pacer.set_rate(rate, at(1000));  // 300 bytes earned
    EXPECT_EQ(pacer.next_send(), next_send);
  }
}

TEST(Pacer, StopKeepsBytesAheadOfTheSchedule) {
  Pacer pacer(1000);
  pacer.set_rate(kByteEveryNs, at(0));
  pacer.on_sent(4000, at(0));
  pacer.set_rate(Rate(), at(1000));
  EXPECT_EQ(pacer.next_send(), Instant::never());
  pacer.on_sent(500, at(1100));  // already in flight
  pacer.set_rate(kByteEveryNs, at(9000));
  EXPECT_EQ(pacer.next_send(), at(9000 + 3500));
}

TEST(Pacer, NoBytesAreEarnedWhileStopped) {
  Pacer pacer(1000);
  pacer.set_rate(kByteEveryNs, at(0));
  pacer.set_rate(Rate(), at(0));
  pacer.set_rate(kByteEveryNs, at(1'000'000));
  EXPECT_EQ(pacer.next_send(), at(1'000'000));
}

// --- grids: a packet every 1000 ns at 8 Gb/s ---

constexpr Bytes kPacket = 1000;
constexpr Duration kPeriod = Duration::from_ns(1000);

Pacer pacer_with_next_at(int64_t ns) {
  Pacer pacer(4 * kPacket);
  pacer.set_rate(kByteEveryNs, at(0));
  pacer.align(at(ns));
  return pacer;
}

TEST(Pacer, FlowMovesToTheNearestInstantOfAGrid) {
  Pacer pacer = pacer_with_next_at(5000);
  pacer.move_to({at(4400), kPeriod}, at(4100));
  EXPECT_EQ(pacer.next_send(), at(5400));
  pacer.move_to({at(4100), kPeriod}, at(4100));  // the first move delayed it by 400
  EXPECT_EQ(pacer.next_send(), at(5100));
  pacer.move_to({at(9900), kPeriod}, at(4100));
  EXPECT_EQ(pacer.next_send(), at(4900));
}

TEST(Pacer, FlowDoesNotMoveIntoThePast) {
  Pacer pacer = pacer_with_next_at(5000);
  pacer.move_to({at(4800), kPeriod}, at(4900));
  EXPECT_EQ(pacer.next_send(), at(5800));
}

TEST(Pacer, FlowMovesIntoThePastWithinTheGridsTolerance) {
  Pacer pacer = pacer_with_next_at(5000);
  pacer.move_to({at(4800), kPeriod, Duration::from_ns(100)}, at(4900));
  EXPECT_EQ(pacer.next_send(), at(4800));
  pacer.on_sent(kPacket, at(4900));
  EXPECT_EQ(pacer.next_send(), at(5800));
}

// The packet is late because other flows of the NIC sent first.
TEST(Pacer, OverdueFlowKeepsItsInstant) {
  Pacer pacer = pacer_with_next_at(5000);
  pacer.move_to({at(5020), kPeriod}, at(5300));
  EXPECT_EQ(pacer.next_send(), at(5020));
  pacer.on_sent(kPacket, at(5300));
  EXPECT_EQ(pacer.next_send(), at(6020));
}

TEST(Pacer, GridsDelayAFlowByAtMostAPeriod) {
  Pacer pacer = pacer_with_next_at(5000);
  for (int i = 0; i < 20; ++i) {
    const Instant next = pacer.next_send();
    pacer.move_to({next + Duration::from_ns(400), kPeriod}, next);
  }
  EXPECT_LE(pacer.next_send(), at(6000));
}

TEST(Pacer, MoveEndsAHold) {
  Pacer pacer = pacer_with_next_at(5000);
  pacer.hold_until(at(5600));
  pacer.move_to({at(4400), kPeriod}, at(4100));
  EXPECT_EQ(pacer.next_send(), at(5400));
}

TEST(Pacer, AlignmentResetsTheDelayOfGrids) {
  Pacer pacer = pacer_with_next_at(5000);
  pacer.move_to({at(5400), kPeriod}, at(4100));
  pacer.align(at(6000));
  pacer.move_to({at(6450), kPeriod}, at(4100));  // otherwise 5450, to compensate for the 400
  EXPECT_EQ(pacer.next_send(), at(6450));
}

TEST(Pacer, GridWithoutAPeriodDoesNotMoveAFlow) {
  Pacer pacer = pacer_with_next_at(5000);
  pacer.move_to({}, at(4000));
  EXPECT_EQ(pacer.next_send(), at(5000));
}

TEST(Pacer, HugeDebtSaturates) {
  Pacer pacer(1000);
  pacer.set_rate(Rate::from_bps(1), at(0));
  for (int i = 0; i < 3; ++i) pacer.on_sent(~Bytes{0}, at(0));
  EXPECT_GE(pacer.next_send(), Instant::never() - Duration::from_ns(1));
}

}  // namespace
}  // namespace pacecar::pacer_test
