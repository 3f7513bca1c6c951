// SoftNic at work: writes, losses, pacing, windows and what completes when.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/soft_nic_pair.h"
#include "transport/base/seq.h"

namespace pacecar::operations_test {
namespace {

using test::Datagram;
using test::SoftNicPair;
using test::TestMemory;
using wire::PacketKind;

constexpr Bytes kMtu = 1024;
// Longer than an acknowledgement waits, shorter than any timeout.
constexpr Duration kMoment = Duration::from_us(120);
// Ethernet, IPv4 and UDP around a datagram.
constexpr Bytes kAroundDatagram = 66;

bool is_data(const Datagram& datagram) { return datagram.kind() == PacketKind::kData; }

TEST(SoftNic, WritePlacesBytesAndTellsOnlyTheSender) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, 100, Access::kLocalRead, 7);
  const auto& to = pair.memory(1, 100);
  ASSERT_EQ(pair.post(0, ends[0], SoftNicPair::write(from, to, 100, 42)), 1U);
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  EXPECT_EQ(to.bytes, from.bytes);
  EXPECT_EQ(pair.completions[0][0].work_request, 42U);
  EXPECT_EQ(pair.completions[0][0].queue_pair, ends[0]);
  EXPECT_EQ(pair.completions[0][0].kind, CompletionKind::kSent);
  EXPECT_EQ(pair.completions[0][0].status, CompletionStatus::kOk);
  EXPECT_TRUE(pair.completions[1].empty());
}

TEST(SoftNic, WriteWithImmediateCompletesAtThePeer) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, 5000, Access::kLocalRead, 3);
  const auto& to = pair.memory(1, 5000);
  pair.post(0, ends[0], SoftNicPair::write(from, to, 5000, 1, 0xABCD));
  ASSERT_TRUE(pair.run_until_completed(1, 1));
  EXPECT_EQ(to.bytes, from.bytes);
  EXPECT_EQ(pair.completions[1][0].kind, CompletionKind::kReceived);
  EXPECT_EQ(pair.completions[1][0].immediate, 0xABCDU);
  EXPECT_EQ(pair.completions[1][0].bytes, 5000U);
  EXPECT_EQ(pair.completions[1][0].queue_pair, ends[1]);
}

TEST(SoftNic, WriteOfNothingIsARealOperation) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  pair.post(0, ends[0], {.id = 1, .opcode = Opcode::kWrite});
  pair.post(0, ends[0], {.id = 2, .immediate = 9, .opcode = Opcode::kWriteWithImm});
  ASSERT_TRUE(pair.run_until_completed(0, 2));
  ASSERT_EQ(pair.completions[1].size(), 1U);
  EXPECT_EQ(pair.completions[1][0].immediate, 9U);
  EXPECT_EQ(pair.completions[1][0].bytes, 0U);
}

TEST(SoftNic, OnlyFailuresOfUnsignaledWritesComplete) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, 100);
  const auto& to = pair.memory(1, 100);
  auto silent = SoftNicPair::write(from, to, 100, 1);
  silent.signaled = false;
  pair.post(0, ends[0], silent);
  silent.id = 2;
  silent.remote_key = to.region.key + 1;
  pair.post(0, ends[0], silent);
  pair.post(0, ends[0], SoftNicPair::write(from, to, 100, 3));
  ASSERT_TRUE(pair.run_until_completed(0, 2));
  EXPECT_EQ(pair.completions[0][0].work_request, 2U);
  EXPECT_EQ(pair.completions[0][0].status, CompletionStatus::kRemoteAccessError);
  EXPECT_EQ(pair.completions[0][1].work_request, 3U);
}

TEST(SoftNic, PacketsMayArriveInReverseOrder) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, 40 * kMtu + 5, Access::kLocalRead, 1);
  const auto& to = pair.memory(1, 40 * kMtu + 5);
  pair.post(0, ends[0], SoftNicPair::write(from, to, from.bytes.size(), 1, 77));
  auto packets = pair.transmit_for(0, kMoment);
  ASSERT_EQ(packets.size(), 41U);
  std::reverse(packets.begin(), packets.end());
  for (const Datagram& packet : packets) {
    pair.collect();
    EXPECT_TRUE(pair.completions[1].empty());
    pair.deliver(1, packet);
  }
  pair.collect();
  ASSERT_EQ(pair.completions[1].size(), 1U);
  EXPECT_EQ(to.bytes, from.bytes);
  EXPECT_TRUE(pair.run_until_completed(0, 1));
  EXPECT_EQ(pair.nic(0).counters().packets_retransmitted, 0U);
}

TEST(SoftNic, CompletesInTheOrderOfPosting) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, 3 * kMtu);
  const auto& to = pair.memory(1, 3 * kMtu);
  for (uint64_t id = 1; id <= 10; ++id) {
    pair.post(0, ends[0], SoftNicPair::write(from, to, id % 4 * kMtu, id));
  }
  auto packets = pair.transmit_for(0, kMoment);
  std::reverse(packets.begin(), packets.end());
  for (const Datagram& packet : packets) {
    pair.deliver(1, packet);
    for (const Datagram& ack : pair.transmit_for(1, kMoment)) pair.deliver(0, ack);
    pair.collect();
  }
  ASSERT_EQ(pair.completions[0].size(), 10U);
  for (uint64_t id = 1; id <= 10; ++id) EXPECT_EQ(pair.completions[0][id - 1].work_request, id);
}

TEST(SoftNic, DuplicatesAreNeverWrittenAgain) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, 4 * kMtu, Access::kLocalRead, 1);
  auto& to = pair.memory(1, 4 * kMtu);
  pair.post(0, ends[0], SoftNicPair::write(from, to, 4 * kMtu, 1, 5));
  const auto packets = pair.transmit_for(0, kMoment);
  for (const Datagram& packet : packets) pair.deliver(1, packet);
  EXPECT_EQ(to.bytes, from.bytes);
  std::fill(to.bytes.begin(), to.bytes.end(), 0xEE);  // in use for something else by now
  const auto expected = to.bytes;
  for (const Datagram& packet : packets) pair.deliver(1, packet);
  EXPECT_EQ(to.bytes, expected);
  EXPECT_EQ(pair.nic(1).counters().duplicates, packets.size());
  pair.collect();
  EXPECT_EQ(pair.completions[1].size(), 1U);
}

TEST(SoftNic, LossIsRepairedByWhatArrivesLater) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  pair.limit(0, 0, {.rate = Rate::from_gbps(1), .window = Bytes{1} << 40});
  const auto& from = pair.memory(0, 60 * kMtu, Access::kLocalRead, 1);
  const auto& to = pair.memory(1, 60 * kMtu);
  size_t data_packets = 0;
  pair.lose = [&](size_t, Datagram& packet) { return is_data(packet) && ++data_packets == 4; };
  pair.post(0, ends[0], SoftNicPair::write(from, to, 60 * kMtu, 1, 5));
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  EXPECT_EQ(to.bytes, from.bytes);
  EXPECT_EQ(pair.nic(0).counters().packets_retransmitted, 1U);
  EXPECT_EQ(pair.nic(0).counters().timeouts, 0U);
  std::array<FlowSignal, 4> signals;
  ASSERT_EQ(pair.nic(0).poll_signals(signals), 1U);
  EXPECT_EQ(signals[0].lost, kMtu);
  EXPECT_EQ(signals[0].acked, 60 * kMtu);
  EXPECT_EQ(signals[0].in_flight, 0U);
}

TEST(SoftNic, LossOfTheLastPacketIsRepairedByAProbe) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, 4 * kMtu, Access::kLocalRead, 1);
  const auto& to = pair.memory(1, 4 * kMtu);
  size_t data_packets = 0;
  pair.lose = [&](size_t, Datagram& packet) { return is_data(packet) && ++data_packets == 4; };
  pair.post(0, ends[0], SoftNicPair::write(from, to, 4 * kMtu, 1, 5));
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  EXPECT_EQ(to.bytes, from.bytes);
  EXPECT_EQ(pair.nic(0).counters().packets_retransmitted, 1U);
  EXPECT_EQ(pair.nic(0).counters().timeouts, 0U) << "one question is no sign of congestion";
}

// All that fills the window is lost, the window shrinks, and a packet waits that is known as lost:
// only the probe can bring things into motion again.
TEST(SoftNic, ProbeLeavesAlthoughTheWindowIsFull) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  pair.limit(0, 0, {.rate = Rate::from_gbps(1), .window = 6 * kMtu});
  const auto& from = pair.memory(0, 6 * kMtu, Access::kLocalRead, 1);
  const auto& to = pair.memory(1, 6 * kMtu);
  size_t data_packets = 0;
  pair.lose = [&](size_t, Datagram& packet) {
    if (!is_data(packet)) return false;
    ++data_packets;
    if (data_packets == 6) pair.limit(0, 0, {.rate = Rate::from_gbps(1), .window = 2 * kMtu});
    return data_packets == 1 || (data_packets >= 4 && data_packets <= 6);
  };
  pair.post(0, ends[0], SoftNicPair::write(from, to, 6 * kMtu, 1, 5));
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  EXPECT_EQ(pair.completions[0][0].status, CompletionStatus::kOk);
  EXPECT_EQ(to.bytes, from.bytes);
}

TEST(SoftNic, AcknowledgementDuringAHeldProbeEndsIt) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, kMtu);
  const auto& to = pair.memory(1, kMtu);
  pair.post(0, ends[0], SoftNicPair::write(from, to, kMtu, 1));
  for (const Datagram& packet : pair.transmit(0)) pair.deliver(1, packet);
  pair.now = pair.now + Duration::from_ms(1);  // the acknowledgement is on its way
  const auto acks = pair.transmit(1);
  ASSERT_EQ(acks.size(), 1U);
  pair.limit(0, 0, {.rate = Rate(), .window = 1 << 20});
  EXPECT_TRUE(pair.transmit(0).empty());
  EXPECT_NE(pair.nic(0).next_deadline(), Instant());
  pair.now = pair.now + Duration::from_ms(100);
  pair.nic(0).on_time(pair.now);
  EXPECT_EQ(pair.nic(0).next_deadline(), Instant()) << "it wants to send";
  pair.deliver(0, acks[0]);
  pair.collect();
  EXPECT_EQ(pair.completions[0].size(), 1U);
  pair.limit(0, 0, {.rate = Rate::from_gbps(1), .window = 1 << 20});
  EXPECT_TRUE(pair.transmit(0).empty());
}

TEST(SoftNic, SilentPeerBreaksTheQueuePairAtTheLimit) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, kMtu);
  const auto& to = pair.memory(1, kMtu);
  pair.lose = [](size_t, Datagram&) { return true; };
  pair.post(0, ends[0], SoftNicPair::write(from, to, kMtu, 1));
  const Instant begin = pair.now;
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  EXPECT_EQ(pair.completions[0][0].kind, CompletionKind::kBroken);
  EXPECT_EQ(pair.completions[0][0].status, CompletionStatus::kRetryExceeded);
  EXPECT_EQ(pair.completions[0][0].queue_pair, ends[0]);
  const Duration limit = SoftNicPair::default_config().silence_limit;
  EXPECT_GE(pair.now - begin, limit);
  EXPECT_LE(pair.now - begin, limit + LossRecovery{}.max_timeout);
  EXPECT_EQ(pair.post(0, ends[0], SoftNicPair::write(from, to, kMtu, 2)), 0U);
  pair.run_for(Duration::from_s(2));
  EXPECT_EQ(pair.completions[0].size(), 1U);
}

TEST(SoftNic, PostTakesNoMoreThanTheQueuePairHolds) {
  SoftNicPair pair;
  const auto ends = pair.connect({.work_requests = 8});
  const auto& from = pair.memory(0, 64);
  const auto& to = pair.memory(1, 64);
  const std::vector<WorkRequest> many(20, SoftNicPair::write(from, to, 64));
  EXPECT_EQ(pair.nic(0).post(ends[0], many), 8U);
  EXPECT_EQ(pair.nic(0).post(ends[0], many), 0U);
  ASSERT_TRUE(pair.run_until_completed(0, 8));
  EXPECT_EQ(pair.nic(0).post(ends[0], many), 8U);
}

TEST(SoftNic, AcknowledgementsOfPacketsInOrderAreFew) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, 96 * kMtu);
  const auto& to = pair.memory(1, 96 * kMtu);
  size_t acks = 0;
  pair.lose = [&](size_t, Datagram& packet) {
    acks += packet.kind() == PacketKind::kAck;
    return false;
  };
  pair.post(0, ends[0], SoftNicPair::write(from, to, 96 * kMtu, 1));
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  pair.run_for(Duration::from_ms(1));
  EXPECT_GE(acks, 1U);
  EXPECT_LE(acks, 96 / 8 + 1U);  // every second burst of 4 packets, and the end
  EXPECT_EQ(acks, pair.nic(1).counters().acks_sent);
}

TEST(SoftNic, GapsMarksAndRepetitionsAreAcknowledgedAtOnce) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, 4 * kMtu);
  const auto& to = pair.memory(1, 4 * kMtu);
  pair.post(0, ends[0], SoftNicPair::write(from, to, 4 * kMtu, 1));
  auto packets = pair.transmit(0);
  ASSERT_EQ(packets.size(), 4U);
  const auto acks_after = [&](const Datagram& packet) {
    pair.deliver(1, packet);
    return pair.transmit(1).size();
  };
  EXPECT_EQ(acks_after(packets[0]), 0U);
  EXPECT_EQ(pair.transmit_for(1, kMoment).size(), 1U);
  EXPECT_EQ(acks_after(packets[0]), 1U);  // again
  EXPECT_EQ(acks_after(packets[2]), 1U);  // the second one is missing
  EXPECT_EQ(acks_after(packets[1]), 0U);
  packets[3].ecn = Ecn::kCongestion;
  EXPECT_EQ(acks_after(packets[3]), 1U);
}

TEST(SoftNic, MarksComeBackToTheSender) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, 20 * kMtu);
  const auto& to = pair.memory(1, 20 * kMtu);
  size_t data_packets = 0;
  pair.lose = [&](size_t, Datagram& packet) {
    if (is_data(packet) && ++data_packets % 4 == 0) packet.ecn = Ecn::kCongestion;
    return false;
  };
  pair.post(0, ends[0], SoftNicPair::write(from, to, 20 * kMtu, 1));
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  std::array<FlowSignal, 4> signals;
  ASSERT_EQ(pair.nic(0).poll_signals(signals), 1U);
  EXPECT_EQ(signals[0].marked, 5 * kMtu);
  EXPECT_GE(signals[0].rtt, SoftNicPair::kDelay * 2);
}

TEST(SoftNic, FlowKeepsItsRate) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const Rate rate = Rate::from_gbps(2);
  pair.limit(0, 0, {.rate = rate, .window = Bytes{1} << 40});
  const auto& from = pair.memory(0, 4 << 20);
  const auto& to = pair.memory(1, 4 << 20);
  Bytes sent = 0;
  pair.lose = [&](size_t side, Datagram& packet) {
    if (side == 0) sent += packet.bytes.size() + kAroundDatagram;
    return false;
  };
  pair.post(0, ends[0], SoftNicPair::write(from, to, 4 << 20, 1));
  pair.run_for(Duration::from_ms(10));
  const Bytes allowed = rate.bytes_in(Duration::from_ms(10));
  EXPECT_LE(sent, allowed + 5 * 4096 + 4 * (44 + kAroundDatagram));  // catch-up and one burst
  EXPECT_GE(sent, allowed - 4096);
}

TEST(SoftNic, NothingLeavesBeforeTheFirstSend) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, 100);
  const auto& to = pair.memory(1, 100);
  const Instant first_send = pair.now + Duration::from_us(123);
  pair.limit(0, 0,
             {.rate = Rate::from_gbps(10), .first_send = first_send, .window = Bytes{1} << 20});
  std::vector<Instant> times;
  pair.lose = [&](size_t, Datagram& packet) {
    if (is_data(packet)) times.push_back(packet.sent);
    return false;
  };
  pair.post(0, ends[0], SoftNicPair::write(from, to, 100, 1));
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  EXPECT_EQ(times, std::vector{first_send});
}

TEST(SoftNic, WindowBoundsWhatIsInFlight) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  pair.limit(0, 0, {.rate = Rate::from_gbps(100), .window = 5 * kMtu});
  const auto& from = pair.memory(0, 50 * kMtu);
  const auto& to = pair.memory(1, 50 * kMtu);
  pair.post(0, ends[0], SoftNicPair::write(from, to, 50 * kMtu, 1));
  const auto packets = pair.transmit_for(0, kMoment);
  EXPECT_EQ(packets.size(), 5U);
  pair.deliver(1, packets[0]);
  pair.deliver(1, packets[1]);
  for (const Datagram& ack : pair.transmit_for(1, kMoment)) pair.deliver(0, ack);
  EXPECT_EQ(pair.transmit_for(0, kMoment).size(), 2U);
  EXPECT_TRUE(pair.run_until_completed(0, 1));
}

// A sender that cannot go on, or awaits a large write that it has sent, does not wait for gathered
// acknowledgements.
TEST(SoftNic, SenderAsksForTheAcknowledgementThatItNeeds) {
  for (const Bytes window_packets : {Bytes{2}, Bytes{1000}}) {
    SoftNicPair pair;
    const auto ends = pair.connect();
    pair.limit(0, 0, {.rate = Rate::from_gbps(100), .window = window_packets * kMtu});
    const Bytes size = window_packets == 2 ? 8 * kMtu : 33 * kMtu;  // closed window; large write
    const auto& from = pair.memory(0, size);
    const auto& to = pair.memory(1, size);
    WorkRequest write = SoftNicPair::write(from, to, size, 1);
    write.awaited = true;
    pair.post(0, ends[0], write);
    const auto packets = pair.transmit_for(0, kMoment);
    for (size_t i = 0; i + 1 < packets.size(); ++i) pair.deliver(1, packets[i]);
    pair.transmit_for(1, kMoment);  // whatever is due without being asked for
    pair.deliver(1, packets.back());
    EXPECT_EQ(pair.transmit(1).size(), 1U) << packets.size() << " packets";
  }
}

// --- several queue pairs of one flow share its window and pacer ---

TEST(SoftNic, QueuePairGoesOnWhenAnotherLeavesTheWindow) {
  SoftNicPair pair;
  const auto first = pair.connect();
  const auto second = pair.connect();
  const FlowLimits limits{.rate = Rate::from_gbps(100), .window = 4 * kMtu};
  pair.limit(0, 0, limits);
  const auto& from = pair.memory(0, 4 * kMtu);
  const auto& to = pair.memory(1, 4 * kMtu);
  pair.post(0, first[0], SoftNicPair::write(from, to, 4 * kMtu, 1));
  const auto packets = pair.transmit(0);
  ASSERT_EQ(packets.size(), 4U);
  pair.post(0, second[0], SoftNicPair::write(from, to, 4 * kMtu, 2));
  EXPECT_TRUE(pair.transmit(0).empty());
  for (const Datagram& packet : packets) pair.deliver(1, packet);
  EXPECT_TRUE(pair.run_until_completed(0, 2, Duration::from_ms(1)));
}

// The first one's packets fill the window and are all lost; the second, whose turn it is, waits.
TEST(SoftNic, QueuePairThatWaitsDoesNotHoldUpAnothersProbe) {
  SoftNicPair pair;
  const auto first = pair.connect();
  const auto second = pair.connect();
  pair.limit(0, 0, {.rate = Rate::from_gbps(100), .window = 4 * kMtu});
  const auto& from = pair.memory(0, 4 * kMtu);
  const auto& to = pair.memory(1, 4 * kMtu);
  pair.post(0, first[0], SoftNicPair::write(from, to, 4 * kMtu, 1));
  pair.post(0, second[0], SoftNicPair::write(from, to, 4 * kMtu, 2));
  ASSERT_EQ(pair.transmit(0).size(), 4U);
  ASSERT_TRUE(pair.run_until_completed(0, 2));
  for (const Completion& completion : pair.completions[0]) {
    EXPECT_EQ(completion.status, CompletionStatus::kOk);
  }
}

TEST(SoftNic, QueuePairGoesOnWhenAnotherIsDestroyed) {
  SoftNicPair pair;
  const auto first = pair.connect();
  const auto second = pair.connect();
  pair.limit(0, 0, {.rate = Rate::from_gbps(100), .window = 4 * kMtu});
  const auto& from = pair.memory(0, 4 * kMtu);
  const auto& to = pair.memory(1, 4 * kMtu);
  pair.post(0, first[0], SoftNicPair::write(from, to, 4 * kMtu, 1));
  pair.post(0, second[0], SoftNicPair::write(from, to, 4 * kMtu, 2));
  ASSERT_EQ(pair.transmit(0).size(), 4U);  // of the first; all lost
  pair.nic(0).destroy_queue_pair(first[0]);
  ASSERT_TRUE(pair.run_until_completed(0, 1, Duration::from_ms(1)));
  EXPECT_EQ(pair.completions[0][0].work_request, 2U);
}

TEST(SoftNic, QueuePairGoesOnWhenAnothersLossWasNone) {
  SoftNicPair pair;
  const auto first = pair.connect();
  const auto second = pair.connect();
  const auto& from = pair.memory(0, 2 * kMtu);
  const auto& to = pair.memory(1, 2 * kMtu);
  pair.post(0, first[0], SoftNicPair::write(from, to, 0, 1));
  const auto early = pair.transmit(0);
  pair.now = pair.now + Duration::from_ms(1);
  pair.post(0, first[0], SoftNicPair::write(from, to, 0, 2));
  const auto late = pair.transmit(0);
  pair.post(0, second[0], SoftNicPair::write(from, to, 0, 3));
  const auto other = pair.transmit(0);  // now it is the first one's turn
  pair.limit(0, 0, {.rate = Rate(), .window = 1 << 20});
  // The late packet overtakes the early one, which counts as lost until it is acknowledged too.
  for (const auto& packets : {late, early, other}) {
    for (const Datagram& packet : packets) pair.deliver(1, packet);
    for (const Datagram& ack : pair.transmit_for(1, kMoment)) pair.deliver(0, ack);
  }
  pair.collect();
  ASSERT_EQ(pair.completions[0].size(), 3U);
  pair.post(0, second[0], SoftNicPair::write(from, to, kMtu, 4));
  pair.limit(0, 0, {.rate = Rate::from_gbps(1), .window = 1 << 20});
  EXPECT_TRUE(pair.run_until_completed(0, 4, Duration::from_s(1)));
}

TEST(SoftNic, IsIdleWhenAllIsDone) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, 10 * kMtu);
  const auto& to = pair.memory(1, 10 * kMtu);
  pair.post(0, ends[0], SoftNicPair::write(from, to, 10 * kMtu, 1));
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  pair.run_for(Duration::from_s(1));
  for (size_t side = 0; side < 2; ++side) {
    EXPECT_EQ(pair.nic(side).next_deadline(), Instant::never());
    EXPECT_EQ(pair.nic(side).counters().timeouts, 0U);
  }
}

TEST(SoftNic, NumbersOfQueuePairsAreNotUsedAgain) {
  SoftNicConfig config = SoftNicPair::default_config();
  config.queue_pairs = 1024;
  SoftNicPair pair(config);
  std::vector<QueuePairId> ids;
  for (int i = 0; i < 2000; ++i) {
    ids.push_back(pair.nic(0).create_queue_pair({}).value());
    pair.nic(0).destroy_queue_pair(ids.back());
  }
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
  EXPECT_LE(ids.back(), kPsnMask);
}

}  // namespace
}  // namespace pacecar::operations_test
