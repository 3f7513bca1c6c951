// The flows of a NIC that paces whole writes, in virtual time: the order and size of turns, what
// wakes a flow, and its signals and arrivals.
#include "transport/nic/paced/paced_flows.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <optional>
#include <vector>

namespace pacecar::paced_flows_test {
namespace {

constexpr Bytes kWrite = 4096;
constexpr Bytes kHeaders = 100;                // of a write on the link
constexpr Bytes kWide = 1 << 30;               // a window that never matters
constexpr Rate kFast = Rate::from_gbps(8000);  // at kNow four writes may leave at once
constexpr Rate kSlow = Rate::from_gbps(8);     // a byte per ns
constexpr FlowLimits kFree{.rate = kFast, .window = kWide};
constexpr Instant kBegin = Instant::from_ns(1'000'000);
constexpr Instant kNow = kBegin + Duration::from_us(1);

using Slots = std::vector<uint32_t>;

// A NIC without a device: the queues of its queue pairs, and its turns.
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

TEST(PacedFlows, QueuePairsOfAFlowTakeTurns) {
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

TEST(PacedFlows, FlowWithNothingToSendIsSkipped) {
  PacedNic nic(2);
  nic.open(0, {0});
  nic.open(1, {1});
  nic.post(1, 1, 1);
  const auto turn = nic.take_turn();
  ASSERT_TRUE(turn);
  EXPECT_EQ(turn->flow, 1U);
}

TEST(PacedFlows, NextQueuePairTakesTheTurnOfOneThatLeaves) {
  PacedNic nic(1);
  nic.open(0, {0, 1, 2});
  for (const uint32_t slot : {0U, 1U, 2U}) nic.post(0, slot, 2);
  EXPECT_EQ(nic.take_turns(kNow, 1), (Slots{0}));
  nic.flows.leave(0, 0);
  EXPECT_EQ(nic.take_turns(kNow, 2), (Slots{1, 2}));
}

TEST(PacedFlows, TurnIsABurstOfOneQueuePair) {
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
  EXPECT_EQ(nic.take_turn()->bytes, kWrite) << "all that the other queue pair has";
  EXPECT_EQ(nic.take_turn()->bytes, 2 * kWrite);
}

TEST(PacedFlows, WriteLargerThanTheBurstIsATurnOfItsOwn) {
  PacedNic nic(1);
  nic.open(0, {0});
  nic.post(0, 0, 2, 3 * kWrite);
  const auto turn = nic.take_turn();
  ASSERT_TRUE(turn);
  EXPECT_EQ(turn->bytes, 3 * kWrite);
}

// --- window and credit ---

TEST(PacedFlows, QueuePairsOfAFlowShareItsWindow) {
  PacedNic nic(2);
  nic.open(0, {0, 1, 2}, {.rate = kFast, .window = 2 * kWrite});
  nic.open(1, {3}, {.rate = kFast, .window = 2 * kWrite});
  for (const uint32_t slot : {0U, 1U, 2U}) nic.post(0, slot, 1);
  nic.post(1, 3, 1);
  EXPECT_EQ(nic.take_turns(), (Slots{0, 3, 1})) << "the other flow has its own window";
  nic.flows.on_done(0, kWrite);
  nic.flows.wake(0);
  EXPECT_EQ(nic.take_turns(), (Slots{2}));
}

TEST(PacedFlows, TurnEndsWithTheWindow) {
  PacedNic nic(1, 8 * kWrite);
  nic.open(0, {0}, {.rate = kFast, .window = 3 * kWrite});
  nic.post(0, 0, 8);
  const auto turn = nic.take_turn();
  ASSERT_TRUE(turn);
  EXPECT_EQ(turn->bytes, 3 * kWrite);
  EXPECT_FALSE(nic.take_turn());
}

TEST(PacedFlows, WriteThatFitsTheWindowDoesNotWaitForAnotherQueuePair) {
  PacedNic nic(1, 8 * kWrite);
  nic.open(0, {0, 1, 2}, {.rate = kFast, .window = 2 * kWrite});
  for (const uint32_t slot : {0U, 1U}) nic.post(0, slot, 1, 2 * kWrite - 1);
  nic.post(0, 2, 1, 1);
  EXPECT_EQ(nic.take_turns(), (Slots{0, 2}));
}

TEST(PacedFlows, QueuePairThatLeavesWakesTheOthers) {
  PacedNic nic(1);
  nic.open(0, {0, 1}, {.rate = kFast, .window = kWrite});
  nic.post(0, 0, 1);
  nic.post(0, 1, 1);
  EXPECT_EQ(nic.take_turns(), (Slots{0}));
  nic.flows.on_done(0, kWrite);  // the write ends with its queue pair
  nic.flows.leave(0, 0);
  EXPECT_EQ(nic.take_turns(), (Slots{1}));
}

TEST(PacedFlows, FlowOnCreditStopsAndContinuesWithMoreCredit) {
  PacedNic nic(1);
  FlowLimits limits{.rate = kFast, .window = kWide, .credit = 2 * kWrite};
  nic.open(0, {0}, limits);
  nic.post(0, 0, 4);
  EXPECT_EQ(nic.take_turns(), (Slots{0, 0}));
  nic.flows.on_done(0, 2 * kWrite);
  nic.flows.wake(0);
  EXPECT_EQ(nic.take_turns(), Slots()) << "credit is needed although nothing is in flight";
  limits.credit = 3 * kWrite;
  nic.flows.set_limits(0, limits, kNow);
  EXPECT_EQ(nic.take_turns(), (Slots{0}));
}

TEST(PacedFlows, SignalOfAFlowOnCreditHasTheNumberOfSharingFlows) {
  PacedNic nic(5);
  for (const uint32_t i : {0U, 1U, 2U, 3U, 4U}) {
    nic.open(i, {i}, {.rate = kFast, .window = kWide, .credit = i == 3 ? kWrite : kWide});
  }
  nic.post(3, 3, 2);
  EXPECT_EQ(nic.take_turns(), (Slots{3}));
  EXPECT_EQ(nic.signals().size(), 1U);

  // Flow 3 has no credit left, and flow 4 has nothing to send.
  for (const uint32_t i : {0U, 1U, 2U, 3U, 4U}) nic.post(i, i, i == 4 ? 0 : 1);
  EXPECT_EQ(nic.take_turns(), (Slots{0, 1, 2}));
  const auto signals = nic.signals();
  ASSERT_EQ(signals.size(), 3U);
  for (const uint32_t i : {0U, 1U, 2U}) {
    EXPECT_EQ(signals[i].flow, i);
    EXPECT_EQ(signals[i].sharing, 3 - i);
    EXPECT_EQ(signals[i].sent, kWrite);
    EXPECT_EQ(signals[i].in_flight, kWrite);
  }
}

TEST(PacedFlows, SendOfAFlowWithoutCreditMakesNoSignal) {
  PacedNic nic(1);
  nic.open(0, {0});
  nic.post(0, 0, 1);
  EXPECT_EQ(nic.take_turns(), (Slots{0}));
  EXPECT_TRUE(nic.signals().empty());
}

// --- time ---

TEST(PacedFlows, FlowWaitsForItsSendTime) {
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
  EXPECT_EQ(nic.flows.next_deadline(), Instant::never()) << "the flow has nothing more to send";
}

TEST(PacedFlows, FlowWithoutCreditHasNoDeadline) {
  PacedNic nic(1);
  nic.open(0, {0}, {.rate = kFast, .window = kWide, .credit = 0});
  nic.post(0, 0, 1);
  EXPECT_EQ(nic.flows.next_deadline(), Instant::never());
}

TEST(PacedFlows, AllDueFlowsSend) {
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

TEST(PacedFlows, NewLimitsWakeAWaitingFlow) {
  PacedNic nic(1);
  nic.flows.join(0, 0);
  nic.post(0, 0, 2);
  EXPECT_EQ(nic.take_turns(kBegin), Slots()) << "the flow has no rate yet";
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

// --- signals and arrivals ---

TEST(PacedFlows, SignalSumsUpAllSinceTheLastSignal) {
  PacedNic nic(4);
  nic.open(2, {0});
  nic.post(2, 0, 3);
  EXPECT_EQ(nic.take_turns().size(), 3U);
  for (const Duration rtt : {Duration::from_us(9), Duration::from_us(7), Duration()}) {
    nic.flows.on_acknowledged(2, 100, rtt);
  }
  nic.flows.on_done(2, kWrite);
  const auto first = nic.signals();
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].flow, 2U);
  EXPECT_EQ(first[0].acked, 300U);
  EXPECT_EQ(first[0].rtt, Duration::from_us(7)) << "the newest known one";
  EXPECT_EQ(first[0].sharing, 0U);
  EXPECT_EQ(first[0].in_flight, 2 * kWrite);
  EXPECT_EQ(first[0].sent, 3 * kWrite);
  EXPECT_TRUE(nic.signals().empty());

  nic.flows.on_acknowledged(2, 1, Duration());
  const auto next = nic.signals();
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next[0].flow, 2U);
  EXPECT_EQ(next[0].acked, 1U);
  EXPECT_EQ(next[0].rtt, Duration()) << "the last signal's is not repeated";
}

TEST(PacedFlows, ArrivalSumsUpAllSinceTheLastArrival) {
  PacedNic nic(4);
  nic.flows.on_arrived(3, 7);
  EXPECT_TRUE(nic.arrivals().empty()) << "reports are off";
  nic.flows.report_arrivals(true);
  nic.flows.on_arrived(3, 100);
  nic.flows.on_arrived(3, 20);
  const auto first = nic.arrivals();
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].flow, 3U);
  EXPECT_EQ(first[0].bytes, 120U);
  EXPECT_TRUE(nic.arrivals().empty());

  nic.flows.on_arrived(3, 5);
  const auto next = nic.arrivals();
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next[0].flow, 3U);
  EXPECT_EQ(next[0].bytes, 5U);
}

TEST(PacedFlows, SignalsAndArrivalsWithoutRoomAreReportedLater) {
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

TEST(PacedFlows, EndedFlowLeavesNothingToTheNextOfItsNumber) {
  PacedNic nic(2);
  nic.flows.report_arrivals(true);
  nic.open(1, {0, 1}, {.rate = kFast, .window = kWide, .credit = kWrite});
  nic.post(1, 0, 2);
  EXPECT_EQ(nic.take_turns(), (Slots{0})) << "as far as its credit";
  nic.flows.on_done(1, kWrite);
  nic.flows.on_acknowledged(1, kWrite, Duration::from_us(5));
  nic.flows.on_arrived(1, 10);

  nic.flows.leave(1, 1);
  EXPECT_EQ(nic.take_turns(), Slots()) << "the flow stays open with the other queue pair";
  nic.flows.leave(1, 0);
  EXPECT_TRUE(nic.signals().empty());
  EXPECT_TRUE(nic.arrivals().empty());

  // The next flow of the number.
  nic.flows.join(1, 0);
  nic.flows.wake(1);
  EXPECT_EQ(nic.take_turns(), (Slots{0})) << "the used credit counts from zero";
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

TEST(PacedFlows, FlowWithAQueuePairLeftKeepsItsSignals) {
  PacedNic nic(1);
  nic.flows.report_arrivals(true);
  nic.open(0, {0, 1});
  nic.flows.on_acknowledged(0, kWrite, Duration());
  nic.flows.on_arrived(0, kWrite);
  nic.flows.leave(0, 0);
  EXPECT_EQ(nic.signals().size(), 1U);
  EXPECT_EQ(nic.arrivals().size(), 1U);
}

TEST(PacedFlows, AnyInFlightIsTrueUntilTheLastWriteIsDone) {
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
}  // namespace pacecar::paced_flows_test
