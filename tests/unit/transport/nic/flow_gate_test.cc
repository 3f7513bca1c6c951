// A flow's limits in virtual time: chunks leave as wholes, at the rate, within window and credit.
#include "transport/nic/flow_gate.h"

#include <gtest/gtest.h>

namespace pacecar::flow_gate_test {
namespace {

constexpr Bytes kChunk = 64 << 10;
constexpr Instant kBegin = Instant::from_ns(1'000'000);

// Polls the gate every `turn` for `time`; returns how many chunks left.
int chunks_in(FlowGate& gate, Duration time, Duration turn, Instant begin = kBegin) {
  int chunks = 0;
  for (Instant now = begin; now < begin + time; now = now + turn) {
    while (gate.has_room(kChunk) && gate.next_send() <= now) {
      gate.on_sent(kChunk, kChunk, now);
      gate.on_done(kChunk);
      ++chunks;
    }
  }
  return chunks;
}

FlowGate open_gate(const FlowLimits& limits) {
  FlowGate gate(kChunk, Duration::from_us(100));
  gate.set_limits(limits, kBegin);
  return gate;
}

TEST(FlowGate, KeepsTheRateWithShortAndLongTurns) {
  // 10 Gb/s are 19,073 chunks per second; the first is free, and a late turn catches up.
  for (const int64_t turn_ns : {1'000, 20'000, 150'000}) {
    FlowGate gate = open_gate({.rate = Rate::from_gbps(10), .window = 1 << 30});
    const int chunks = chunks_in(gate, Duration::from_s(1), Duration::from_ns(turn_ns));
    EXPECT_GE(chunks, 19'060) << turn_ns;
    EXPECT_LE(chunks, 19'078) << turn_ns;
  }
}

TEST(FlowGate, DelayBeyondTheCatchUpIsNotMadeUpFor) {
  FlowGate gate = open_gate({.rate = Rate::from_gbps(10), .window = 1 << 30});
  EXPECT_EQ(chunks_in(gate, Duration::from_ns(1), Duration::from_ns(1)), 1);
  const Instant late = kBegin + Duration::from_s(1);
  const int chunks = chunks_in(gate, Duration::from_ns(1), Duration::from_ns(1), late);
  EXPECT_GE(chunks, 4);
  EXPECT_LE(chunks, 5);
}

TEST(FlowGate, StoppedFlowHasNoSendTime) {
  FlowGate gate = open_gate({.rate = Rate(), .window = 1 << 30});
  EXPECT_EQ(gate.next_send(), Instant::never());
}

TEST(FlowGate, NothingLeavesBeforeTheFirstSend) {
  const Instant first = kBegin + Duration::from_us(300);
  FlowGate gate = open_gate({.rate = Rate::from_gbps(100), .first_send = first, .window = 1 << 30});
  EXPECT_EQ(gate.next_send(), first);
}

TEST(FlowGate, AlignedFlowSendsAtFirstSendEvenBeforeItsPacedTime) {
  FlowLimits limits{.rate = Rate::from_gbps(1), .window = 1 << 30};
  FlowGate gate = open_gate(limits);
  gate.on_sent(kChunk, kChunk, kBegin);
  EXPECT_GT(gate.next_send(), kBegin + Duration::from_us(500));
  limits.first_send = kBegin + Duration::from_us(10);
  limits.aligned = true;
  gate.set_limits(limits, kBegin);
  EXPECT_EQ(gate.next_send(), limits.first_send);
}

TEST(FlowGate, FirstSendIsMovedToTheGrid) {
  const SendGrid grid{.point = kBegin + Duration::from_us(7), .period = Duration::from_us(50)};
  const FlowGate gate = open_gate({.rate = Rate::from_gbps(10), .grid = grid, .window = 1 << 30});
  EXPECT_EQ(gate.next_send(), grid.point);
}

TEST(FlowGate, AChunkMustFitTheWindowAsAWhole) {
  FlowGate gate = open_gate({.rate = Rate::from_gbps(100), .window = 2 * kChunk + 10});
  gate.on_sent(kChunk, kChunk, kBegin);
  gate.on_sent(kChunk, kChunk, kBegin);
  EXPECT_FALSE(gate.has_room(11));
  EXPECT_TRUE(gate.has_room(10));
  gate.on_done(kChunk);
  EXPECT_TRUE(gate.has_room(kChunk));
  EXPECT_EQ(gate.in_flight(), kChunk);
}

TEST(FlowGate, WithNothingInFlightOneChunkFitsAnyWindow) {
  FlowGate gate = open_gate({.rate = Rate::from_gbps(100), .window = 1});
  EXPECT_TRUE(gate.has_room(kChunk));
  gate.on_sent(kChunk, kChunk, kBegin);
  EXPECT_FALSE(gate.has_room(1));
}

TEST(FlowGate, ChunkThatBeginsWithinTheCreditIsSentWhole) {
  FlowGate gate =
      open_gate({.rate = Rate::from_gbps(100), .window = 1 << 30, .credit = kChunk + 1});
  EXPECT_TRUE(gate.on_credit());
  gate.on_sent(kChunk, kChunk, kBegin);
  EXPECT_TRUE(gate.has_room(kChunk));
  gate.on_sent(kChunk, kChunk, kBegin);
  gate.on_done(2 * kChunk);
  EXPECT_FALSE(gate.has_room(1)) << "credit is needed although nothing is in flight";
  EXPECT_EQ(gate.sent(), 2 * kChunk);
}

TEST(FlowGate, BurstIsTheDecisionsButNoMoreThanTheNics) {
  EXPECT_EQ(open_gate({}).burst(), kChunk);
  EXPECT_EQ(open_gate({.burst = 4096}).burst(), 4096U);
  EXPECT_EQ(open_gate({.burst = 10 * kChunk}).burst(), kChunk);
}

}  // namespace
}  // namespace pacecar::flow_gate_test
