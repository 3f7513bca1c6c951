// The flows of a NIC that paces whole writes, in virtual time: whose turn it is, what belongs to a
// turn, what wakes a flow, and what is told of it.
#include "transport/nic/paced/paced_flows.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <optional>
#include <vector>

namespace pacecar {
namespace {

constexpr Bytes kWrite = 4096;
constexpr Bytes kHeaders = 100;                // of a write on the link
constexpr Bytes kWide = 1 << 30;               // a window that never matters
constexpr Rate kFast = Rate::from_gbps(8000);  // by kNow four writes may leave at once
constexpr Rate kSlow = Rate::from_gbps(8);     // a byte per ns
constexpr FlowLimits kFree{.rate = kFast, .window = kWide};
constexpr Instant kBegin = Instant::from_ns(1'000'000);
constexpr Instant kNow = kBegin + Duration::from_us(1);

using Slots = std::vector<uint32_t>;

// A NIC without a device: what its queue pairs have to send, and the turns that it takes.
struct PacedNic final : WaitingWork {
  explicit PacedNic(uint32_t flow_count, Bytes burst = kWrite)
      : flows(*this, flow_count, burst, Duration::from_us(1), kBegin) {}

  const WorkRequest* waiting(uint32_t slot) const override {
    return queues[slot].empty() ? nullptr : &queues[slot].front();
  }

  void open(FlowId flow, const Slots& slots, const FlowLimits& limits = kFree) {
    for (const uint32_t slot : slots) flows.join(flow, slot);
    flows.set_limits(flow, limits, kBegin);
  }

  void post(FlowId flow, uint32_t slot, size_t count, Bytes bytes = kWrite) {
    for (size_t i = 0; i < count; ++i) queues[slot].push_back({.length = bytes});
    flows.wake(flow);
  }

  // Hands the device all that belongs to the next turn.
  std::optional<PacedFlows::Turn> take_turn(Instant now = kNow) {
    auto turn = flows.next_turn(now);
    if (!turn) return turn;
    while (const WorkRequest* request = waiting(turn->slot)) {
      if (!flows.takes(*turn, request->length)) break;
      flows.on_sent(*turn, request->length, request->length + kHeaders, now);
      queues[turn->slot].pop_front();
    }
    flows.end_turn(*turn);
    return turn;
  }

  // The queue pairs that have their turn now, in order; at most `most`.
  Slots take_turns(Instant now = kNow, size_t most = 1000) {
    Slots slots;
    while (slots.size() < most) {
      const auto turn = take_turn(now);
      if (!turn) break;
      slots.push_back(turn->slot);
    }
    return slots;
  }

  std::vector<FlowSignal> signals(size_t most = 100) {
    std::vector<FlowSignal> all(most);
    all.resize(flows.poll_signals(all));
    return all;
  }

  std::vector<FlowArrival> arrivals(size_t most = 100) {
    std::vector<FlowArrival> all(most);
    all.resize(flows.poll_arrivals(all));
    return all;
  }

  std::array<std::deque<WorkRequest>, 100> queues;
  PacedFlows flows;
};

// --- turns ---

TEST(PacedFlows, TheQueuePairsOfAFlowTakeTurns) {
  PacedNic nic(1);
  nic.open(0, {5, 6, 7});
  nic.post(0, 5, 2);
  nic.post(0, 6, 1);
  nic.post(0, 7, 1);
  EXPECT_EQ(nic.take_turns(), (Slots{5, 6, 7, 5}));
}

TEST(PacedFlows, FlowsTakeTurns) {
  PacedNic nic(3);
  for (const uint32_t i : {2U, 0U, 1U}) {
    nic.open(i, {i});
    nic.post(i, i, 2);
  }
  EXPECT_EQ(nic.take_turns(), (Slots{2, 0, 1, 2, 0, 1}));
}

TEST(PacedFlows, AFlowWithNothingToSendHoldsUpNobody) {
  PacedNic nic(2);
  nic.open(0, {0});
  nic.open(1, {1});
  nic.post(1, 1, 1);
  const auto turn = nic.take_turn();
  ASSERT_TRUE(turn);
  EXPECT_EQ(turn->flow, 1U);
}

TEST(PacedFlows, WhenAQueuePairLeavesTheNextHasItsTurn) {
  PacedNic nic(1);
  nic.open(0, {0, 1, 2});
  for (const uint32_t slot : {0U, 1U, 2U}) nic.post(0, slot, 2);
  EXPECT_EQ(nic.take_turns(kNow, 1), (Slots{0}));
  nic.flows.leave(0, 0);
  EXPECT_EQ(nic.take_turns(kNow, 2), (Slots{1, 2}));
}

TEST(PacedFlows, ATurnIsABurstOfOneQueuePair) {
  PacedNic nic(1, 4 * kWrite);
  nic.open(0, {0, 1});
  nic.post(0, 0, 9);
  nic.post(0, 1, 1);
  const auto turn = nic.take_turn();
  ASSERT_TRUE(turn);
  EXPECT_EQ(turn->flow, 0U);
  EXPECT_EQ(turn->slot, 0U);
  EXPECT_EQ(turn->bytes, 4 * kWrite);

  nic.flows.set_limits(0, {.rate = kFast, .window = kWide, .burst = 2 * kWrite}, kBegin);
  EXPECT_EQ(nic.take_turn()->bytes, kWrite) << "of the other, which has no more";
  EXPECT_EQ(nic.take_turn()->bytes, 2 * kWrite);
}

TEST(PacedFlows, AWriteLargerThanTheBurstIsATurnOfItsOwn) {
  PacedNic nic(1);
  nic.open(0, {0});
  nic.post(0, 0, 2, 3 * kWrite);
  const auto turn = nic.take_turn();
  ASSERT_TRUE(turn);
  EXPECT_EQ(turn->bytes, 3 * kWrite);
}

// --- window and credit ---

TEST(PacedFlows, TheWindowIsOfAllQueuePairsOfAFlow) {
  PacedNic nic(2);
  nic.open(0, {0, 1, 2}, {.rate = kFast, .window = 2 * kWrite});
  nic.open(1, {3}, {.rate = kFast, .window = 2 * kWrite});
  for (const uint32_t slot : {0U, 1U, 2U}) nic.post(0, slot, 1);
  nic.post(1, 3, 1);
  EXPECT_EQ(nic.take_turns(), (Slots{0, 3, 1})) << "the other flow has its own";
  nic.flows.on_done(0, kWrite);
  nic.flows.wake(0);
  EXPECT_EQ(nic.take_turns(), (Slots{2}));
}

TEST(PacedFlows, ATurnEndsWhereTheWindowDoes) {
  PacedNic nic(1, 8 * kWrite);
  nic.open(0, {0}, {.rate = kFast, .window = 3 * kWrite});
  nic.post(0, 0, 8);
  const auto turn = nic.take_turn();
  ASSERT_TRUE(turn);
  EXPECT_EQ(turn->bytes, 3 * kWrite);
  EXPECT_FALSE(nic.take_turn());
}

TEST(PacedFlows, WhatFitsTheWindowDoesNotWaitForAnotherQueuePair) {
  PacedNic nic(1, 8 * kWrite);
  nic.open(0, {0, 1, 2}, {.rate = kFast, .window = 2 * kWrite});
  for (const uint32_t slot : {0U, 1U}) nic.post(0, slot, 1, 2 * kWrite - 1);
  nic.post(0, 2, 1, 1);
  EXPECT_EQ(nic.take_turns(), (Slots{0, 2}));
}

TEST(PacedFlows, AQueuePairThatLeavesWakesTheOthers) {
  PacedNic nic(1);
  nic.open(0, {0, 1}, {.rate = kFast, .window = kWrite});
  nic.post(0, 0, 1);
  nic.post(0, 1, 1);
  EXPECT_EQ(nic.take_turns(), (Slots{0}));
  nic.flows.on_done(0, kWrite);  // it is lost with its queue pair
  nic.flows.leave(0, 0);
  EXPECT_EQ(nic.take_turns(), (Slots{1}));
}

TEST(PacedFlows, AFlowOnCreditStopsAndGoesOnWithMore) {
  PacedNic nic(1);
  FlowLimits limits{.rate = kFast, .window = kWide, .credit = 2 * kWrite};
  nic.open(0, {0}, limits);
  nic.post(0, 0, 4);
  EXPECT_EQ(nic.take_turns(), (Slots{0, 0}));
  nic.flows.on_done(0, 2 * kWrite);
  nic.flows.wake(0);
  EXPECT_EQ(nic.take_turns(), Slots()) << "nothing in flight is no credit";
  limits.credit = 3 * kWrite;
  nic.flows.set_limits(0, limits, kNow);
  EXPECT_EQ(nic.take_turns(), (Slots{0}));
}

TEST(PacedFlows, AFlowOnCreditTellsHowManyShareTheNic) {
  PacedNic nic(5);
  for (const uint32_t i : {0U, 1U, 2U, 3U, 4U}) {
    nic.open(i, {i}, {.rate = kFast, .window = kWide, .credit = i == 3 ? kWrite : kWide});
  }
  nic.post(3, 3, 2);
  EXPECT_EQ(nic.take_turns(), (Slots{3}));
  EXPECT_EQ(nic.signals().size(), 1U);

  // 3 has no credit left, 4 nothing to send.
  for (const uint32_t i : {0U, 1U, 2U, 3U, 4U}) nic.post(i, i, i == 4 ? 0 : 1);
  EXPECT_EQ(nic.take_turns(), (Slots{0, 1, 2}));
  const auto told = nic.signals();
  ASSERT_EQ(told.size(), 3U);
  for (const uint32_t i : {0U, 1U, 2U}) {
    EXPECT_EQ(told[i].flow, i);
    EXPECT_EQ(told[i].sharing, 3 - i);
    EXPECT_EQ(told[i].sent, kWrite);
    EXPECT_EQ(told[i].in_flight, kWrite);
  }
}

TEST(PacedFlows, WithoutCreditNobodyIsToldThatAFlowHasSent) {
  PacedNic nic(1);
  nic.open(0, {0});
  nic.post(0, 0, 1);
  EXPECT_EQ(nic.take_turns(), (Slots{0}));
  EXPECT_TRUE(nic.signals().empty());
}

// --- time ---

TEST(PacedFlows, AFlowWaitsForItsTime) {
  PacedNic nic(1);
  nic.flows.join(0, 0);
  EXPECT_EQ(nic.flows.next_deadline(), Instant::never());
  nic.flows.set_limits(0, {.rate = kSlow, .window = kWide}, kBegin);
  nic.post(0, 0, 2);
  EXPECT_EQ(nic.flows.next_deadline(), Instant()) << "at once";
  EXPECT_EQ(nic.take_turns(kBegin), (Slots{0}));
  const Instant due = kBegin + kSlow.time_for(kWrite + kHeaders);
  EXPECT_EQ(nic.flows.next_deadline(), due);
  const Instant early = due - Duration::from_ns(1);
  nic.flows.on_time(early);
  EXPECT_EQ(nic.take_turns(early), Slots());
  nic.flows.on_time(due);
  EXPECT_EQ(nic.take_turns(due), (Slots{0}));
  EXPECT_EQ(nic.flows.next_deadline(), Instant::never()) << "it has nothing more to send";
}

TEST(PacedFlows, AFlowThatMayNotSendDoesNotKeepTheNicAwake) {
  PacedNic nic(1);
  nic.open(0, {0}, {.rate = kFast, .window = kWide, .credit = 0});
  nic.post(0, 0, 1);
  EXPECT_EQ(nic.flows.next_deadline(), Instant::never());
}

TEST(PacedFlows, AllFlowsThatAreDueGoOn) {
  constexpr uint32_t kFlows = 100;
  PacedNic nic(kFlows);
  for (uint32_t i = 0; i < kFlows; ++i) {
    nic.open(i, {i}, {.rate = kSlow, .window = kWide});
    nic.post(i, i, 2);
  }
  EXPECT_EQ(nic.take_turns(kBegin).size(), kFlows);
  const Instant due = kBegin + kSlow.time_for(kWrite + kHeaders);
  nic.flows.on_time(due);
  EXPECT_EQ(nic.take_turns(due).size(), kFlows);
}

TEST(PacedFlows, NewLimitsWakeAFlowThatWaits) {
  PacedNic nic(1);
  nic.flows.join(0, 0);
  nic.post(0, 0, 2);
  EXPECT_EQ(nic.take_turns(kBegin), Slots()) << "it is stopped";
  EXPECT_EQ(nic.flows.next_deadline(), Instant::never());
  FlowLimits limits{.rate = kSlow, .window = kWide};
  nic.flows.set_limits(0, limits, kBegin);
  EXPECT_EQ(nic.take_turns(kBegin), (Slots{0}));
  limits.first_send = kBegin + Duration::from_ns(10);
  limits.aligned = true;
  nic.flows.set_limits(0, limits, kBegin);
  EXPECT_EQ(nic.take_turns(kBegin), Slots());
  EXPECT_EQ(nic.flows.next_deadline(), limits.first_send);
  nic.flows.on_time(limits.first_send);
  EXPECT_EQ(nic.take_turns(limits.first_send), (Slots{0}));
}

// --- what is told ---

TEST(PacedFlows, ASignalTellsAllSinceTheLastOnce) {
  PacedNic nic(4);
  nic.open(2, {0});
  nic.post(2, 0, 3);
  EXPECT_EQ(nic.take_turns().size(), 3U);
  for (const Duration rtt : {Duration::from_us(9), Duration::from_us(7), Duration()}) {
    nic.flows.on_acknowledged(2, 100, rtt);
  }
  nic.flows.on_done(2, kWrite);
  const auto told = nic.signals();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].flow, 2U);
  EXPECT_EQ(told[0].acked, 300U);
  EXPECT_EQ(told[0].rtt, Duration::from_us(7)) << "the newest that is known";
  EXPECT_EQ(told[0].sharing, 0U);
  EXPECT_EQ(told[0].in_flight, 2 * kWrite);
  EXPECT_EQ(told[0].sent, 3 * kWrite);
  EXPECT_TRUE(nic.signals().empty());

  nic.flows.on_acknowledged(2, 1, Duration());
  const auto next = nic.signals();
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next[0].flow, 2U);
  EXPECT_EQ(next[0].acked, 1U);
  EXPECT_EQ(next[0].rtt, Duration()) << "not that of the last signal";
}

TEST(PacedFlows, AnArrivalTellsAllSinceTheLastOnce) {
  PacedNic nic(4);
  nic.flows.on_arrived(3, 7);
  EXPECT_TRUE(nic.arrivals().empty()) << "nobody wants to know";
  nic.flows.report_arrivals(true);
  nic.flows.on_arrived(3, 100);
  nic.flows.on_arrived(3, 20);
  const auto told = nic.arrivals();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].flow, 3U);
  EXPECT_EQ(told[0].bytes, 120U);
  EXPECT_TRUE(nic.arrivals().empty());

  nic.flows.on_arrived(3, 5);
  const auto next = nic.arrivals();
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next[0].flow, 3U);
  EXPECT_EQ(next[0].bytes, 5U);
}

TEST(PacedFlows, WhatFindsNoRoomIsToldLater) {
  PacedNic nic(3);
  nic.flows.report_arrivals(true);
  for (const FlowId flow : {2U, 0U, 1U}) {
    nic.flows.on_acknowledged(flow, 1, Duration());
    nic.flows.on_arrived(flow, 1);
  }
  EXPECT_EQ(nic.signals(2).size(), 2U);
  EXPECT_EQ(nic.arrivals(2).size(), 2U);
  const auto signal = nic.signals(2);
  ASSERT_EQ(signal.size(), 1U);
  EXPECT_EQ(signal[0].flow, 1U);
  const auto arrival = nic.arrivals(2);
  ASSERT_EQ(arrival.size(), 1U);
  EXPECT_EQ(arrival[0].flow, 1U);
}

TEST(PacedFlows, AFlowThatEndsForgets) {
  PacedNic nic(2);
  nic.flows.report_arrivals(true);
  nic.open(1, {0, 1}, {.rate = kFast, .window = kWide, .credit = kWrite});
  nic.post(1, 0, 2);
  EXPECT_EQ(nic.take_turns(), (Slots{0})) << "its credit";
  nic.flows.on_done(1, kWrite);
  nic.flows.on_acknowledged(1, kWrite, Duration::from_us(5));
  nic.flows.on_arrived(1, 10);

  nic.flows.leave(1, 1);
  EXPECT_EQ(nic.take_turns(), Slots()) << "it goes on with the other queue pair";
  nic.flows.leave(1, 0);
  EXPECT_TRUE(nic.signals().empty());
  EXPECT_TRUE(nic.arrivals().empty());

  // The next of its number.
  nic.flows.join(1, 0);
  nic.flows.wake(1);
  EXPECT_EQ(nic.take_turns(), (Slots{0})) << "the credit counts anew";
  nic.flows.on_arrived(1, 3);
  const auto signal = nic.signals();
  ASSERT_EQ(signal.size(), 1U);
  EXPECT_EQ(signal[0].sent, kWrite);
  EXPECT_EQ(signal[0].acked, 0U);
  EXPECT_EQ(signal[0].rtt, Duration());
  const auto arrival = nic.arrivals();
  ASSERT_EQ(arrival.size(), 1U);
  EXPECT_EQ(arrival[0].bytes, 3U);
}

TEST(PacedFlows, AFlowWithAQueuePairLeftForgetsNothing) {
  PacedNic nic(1);
  nic.flows.report_arrivals(true);
  nic.open(0, {0, 1});
  nic.flows.on_acknowledged(0, kWrite, Duration());
  nic.flows.on_arrived(0, kWrite);
  nic.flows.leave(0, 0);
  EXPECT_EQ(nic.signals().size(), 1U);
  EXPECT_EQ(nic.arrivals().size(), 1U);
}

TEST(PacedFlows, KnowsWhetherAnythingIsInFlight) {
  PacedNic nic(3);
  nic.open(1, {0});
  nic.post(1, 0, 1);
  EXPECT_FALSE(nic.flows.any_in_flight());
  EXPECT_EQ(nic.take_turns(), (Slots{0}));
  EXPECT_TRUE(nic.flows.any_in_flight());
  nic.flows.on_done(1, kWrite);
  EXPECT_FALSE(nic.flows.any_in_flight());
}

}  // namespace
}  // namespace pacecar
