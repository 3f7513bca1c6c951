// SoftNic: whose turn it is to send, how bursts are paced, which acknowledgements leave with data,
// and the reports of a flow; in both wire modes where they share it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/rc_pair.h"
#include "tests/support/standard_pair.h"

namespace pacecar::turns_test {
namespace {

using test::Datagram;
using test::forge;
using test::parse;
using test::SoftNicPair;
using test::StandardPair;
using test::TestMemory;

constexpr Bytes kMtu = 1024;
constexpr size_t kBurst = 4;  // packets
constexpr FlowLimits kFast{.rate = Rate::from_gbps(1000), .window = Bytes{1} << 40};

// The peer's queue pair that a packet goes to, in either mode.
uint32_t destination_of(const TxPacket& packet) {
  const auto header = packet.header;
  return uint32_t{header[5]} << 16 | uint32_t{header[6]} << 8 | header[7];
}

class SoftNicTurnsTest : public testing::TestWithParam<WireMode> {
 protected:
  void post(size_t side, QueuePairId id, size_t packets) {
    const auto& from = pair_.memory(side, packets * kMtu);
    const auto& to = pair_.memory(1 - side, packets * kMtu);
    pair_.post(side, id, SoftNicPair::write(from, to, packets * kMtu));
  }
  bool asks(const Datagram& packet) const {
    return GetParam() == WireMode::kRoce ? parse(packet).ack_request : packet.data().ack_request;
  }
  // The packets that leave within 1 us.
  std::vector<Datagram> send() { return pair_.transmit_for(0, Duration::from_us(1)); }

  SoftNicPair pair_{test::rc_config(GetParam())};
  SoftNicPair::Ends ends_ = pair_.connect();
};

TEST_P(SoftNicTurnsTest, QueuePairsOfAFlowSendABurstInTurnWhoeverIsIdle) {
  const std::array all{ends_, pair_.connect(), pair_.connect()};
  for (const size_t idle : {0, 1, 2}) {
    SCOPED_TRACE(idle);
    std::multiset<uint32_t> expected;
    for (size_t i = 0; i < all.size(); ++i) {
      if (i == idle) continue;
      post(0, all[i][0], 3 * kBurst);
      for (int burst = 0; burst < 3; ++burst) expected.insert(all[i][1] & 0xFFFFFF);
    }
    std::vector<uint32_t> turns;
    std::array<TxPacket, kBurst> packets;
    for (; turns.size() < 6; pair_.now = pair_.now + Duration::from_us(1)) {
      pair_.nic(0).on_time(pair_.now);
      const size_t count = pair_.nic(0).poll_transmit(pair_.now, packets);
      ASSERT_EQ(count, kBurst);
      turns.push_back(destination_of(packets[0]));
      for (const TxPacket& packet : packets) EXPECT_EQ(destination_of(packet), turns.back());
    }
    for (size_t i = 2; i < turns.size(); ++i) {
      EXPECT_EQ(turns[i], turns[i - 2]);
      EXPECT_NE(turns[i], turns[i - 1]);
    }
  }
}

TEST_P(SoftNicTurnsTest, BurstsAreAsFarApartAsTheirBytesOnTheLinkTake) {
  const Rate rate = Rate::from_gbps(10);
  pair_.limit(0, 0, {.rate = rate, .window = Bytes{1} << 40});
  post(0, ends_[0], 3 * kBurst - 1);
  const auto sent = pair_.transmit_for(0, Duration::from_us(50));
  ASSERT_EQ(sent.size(), 3 * kBurst - 1);
  const Bytes overhead = test::rc_config().wire_overhead_bytes;
  Instant due = sent[0].sent;
  for (size_t i = 0; i < sent.size(); ++i) {
    if (i % kBurst == 0 && i > 0) {
      Bytes bytes = 0;
      for (size_t j = i - kBurst; j < i; ++j) bytes += sent[j].bytes.size() + overhead;
      due = due + rate.time_for(bytes);
    }
    EXPECT_NEAR(static_cast<double>((sent[i].sent - due).ns()), 0, 2) << i;
  }
}

TEST_P(SoftNicTurnsTest, TheLastPacketThatTheWindowAllowsAsks) {
  pair_.limit(0, 0, {.rate = Rate::from_gbps(1000), .window = 3 * kMtu - 1});
  post(0, ends_[0], 6);
  const auto packets = send();
  ASSERT_EQ(packets.size(), 2U) << "of the third not all would fit";
  EXPECT_FALSE(asks(packets[0]));
  EXPECT_TRUE(asks(packets[1]));
}

TEST_P(SoftNicTurnsTest, PacketsThatAreFarApartAskForTheirAcknowledgements) {
  for (const uint64_t mbps : {120, 200}) {  // 68 and 41 us for a packet
    pair_.limit(0, 0, {.rate = Rate::from_bps(mbps * 1'000'000), .window = Bytes{1} << 40});
    post(0, ends_[0], 3);
    pair_.now = pair_.now + Duration::from_ms(10);
    const auto packets = pair_.transmit_for(0, Duration::from_ns(1));
    ASSERT_FALSE(packets.empty());
    EXPECT_EQ(asks(packets[0]), mbps == 120) << "more than half of what an answer may wait";
    pair_.run_for(Duration::from_ms(50));
  }
}

// What its packets held of the window is there for the others of the flow.
TEST(SoftNicBroken, AStandardQueuePairThatEndsLeavesItsWindowToOthers) {
  SoftNicPair pair{test::rc_config()};
  const auto ends = pair.connect();
  const auto other = pair.connect();
  pair.limit(0, 0, {.rate = Rate::from_gbps(1000), .window = 4 * kMtu});
  const auto& from = pair.memory(0, 8 * kMtu);
  const auto& to = pair.memory(1, 8 * kMtu);
  pair.post(0, ends[0], SoftNicPair::write(from, to, 8 * kMtu));
  EXPECT_EQ(pair.transmit_for(0, Duration::from_us(1)).size(), 4U) << "and all lost";
  pair.post(0, other[0], SoftNicPair::write(from, to, 4 * kMtu));
  EXPECT_TRUE(pair.transmit_for(0, Duration::from_us(1)).empty());
  pair.nic(0).break_queue_pair(ends[0]);
  EXPECT_EQ(pair.transmit_for(0, Duration::from_us(1)).size(), 4U);
}

TEST_P(SoftNicTurnsTest, AQueuePairThatIsDestroyedLeavesItsWindowToOthers) {
  const auto other = pair_.connect();
  pair_.limit(0, 0, {.rate = Rate::from_gbps(1000), .window = 4 * kMtu});
  post(0, ends_[0], 8);
  EXPECT_EQ(send().size(), 4U) << "and all lost";
  post(0, other[0], 4);
  pair_.nic(0).destroy_queue_pair(ends_[0]);
  EXPECT_EQ(send().size(), 4U);
  EXPECT_TRUE(pair_.transmit_for(0, Duration::from_us(1)).empty());
}

TEST_P(SoftNicTurnsTest, NothingIsDueOfAQueuePairThatIsGone) {
  post(0, ends_[0], 2);
  EXPECT_EQ(send().size(), 2U) << "and lost";
  EXPECT_LT(pair_.nic(0).next_deadline(), Instant::never());
  pair_.nic(0).destroy_queue_pair(ends_[0]);
  EXPECT_TRUE(send().empty());
  EXPECT_EQ(pair_.nic(0).next_deadline(), Instant::never());
}

TEST_P(SoftNicTurnsTest, SlotsNumberTheQueuePairsFromOne) {
  std::set<uint32_t> slots;
  for (int i = 0; i < 4; ++i) slots.insert(pair_.nic(0).slot_of(pair_.connect()[0]));
  EXPECT_THAT(slots, testing::ElementsAre(1, 2, 3, 4));
}

INSTANTIATE_TEST_SUITE_P(Modes, SoftNicTurnsTest,
                         testing::Values(WireMode::kRoce, WireMode::kExtended),
                         [](const auto& mode) {
                           return mode.param == WireMode::kRoce ? "Standard" : "Extended";
                         });

// --- acknowledgements ---

// A packet arrives that does not ask for an acknowledgement; data goes back after `wait`.
size_t sent_back_after(Duration wait, bool data) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, 100);
  const auto& to = pair.memory(1, 100);
  pair.post(0, ends[0], SoftNicPair::write(from, to, 100));
  for (const Datagram& packet : pair.transmit(0)) pair.deliver(1, packet);
  EXPECT_TRUE(pair.transmit(1).empty());
  pair.now = pair.now + wait;
  if (data) pair.post(1, ends[1], SoftNicPair::write(to, from, 100));
  return pair.transmit(1).size();
}

// It may wait for 100 us.
TEST(SoftNicPassing, AnAcknowledgementThatIsDueSoonLeavesWithData) {
  EXPECT_EQ(sent_back_after(Duration::from_us(70), false), 0U);
  EXPECT_EQ(sent_back_after(Duration::from_us(70), true), 2U);
  EXPECT_EQ(sent_back_after(Duration::from_us(50), true), 1U) << "not that soon";
}

TEST(SoftNicPassing, AfterAnAcknowledgementPacketsAreCountedAnew) {
  SoftNicPair pair{test::rc_config()};
  const auto ends = pair.connect({.paced = false});
  const auto& to = pair.memory(1, 40 * kMtu);
  const std::vector<uint8_t> payload(kMtu, 0x77);
  const uint32_t psn = test::lane_of(pair, 0, ends[0]).first_psn;
  size_t answers = 0;
  for (uint32_t i = 0; i < 17; ++i) {
    roce::Packet packet{.opcode = i == 0 ? roce::Opcode::kWriteFirst : roce::Opcode::kWriteMiddle,
                        .destination_qp = ends[1],
                        .psn = (psn + i) & 0xFFFFFF};
    if (i == 0) {
      packet.address = to.address();
      packet.key = to.region.key;
      packet.length = 40 * kMtu;
    }
    packet.payload = payload;
    pair.deliver(1, forge(0, packet));
    answers += pair.transmit(1).size();
    EXPECT_EQ(answers, (i + 1) / (2 * kBurst)) << "one for two bursts";
  }
}

// --- reports ---

class SoftNicArrivals : public testing::Test {
 protected:
  // A packet of `bytes` bytes arrives after `transit`.
  void arrive(const SoftNicPair::Ends& ends, Bytes bytes, Duration transit) {
    pair_.post(0, ends[0],
               SoftNicPair::write(pair_.memory(0, bytes), pair_.memory(1, bytes), bytes));
    const auto packets = pair_.transmit(0);
    ASSERT_EQ(packets.size(), 1U);
    pair_.now = pair_.now + transit;
    pair_.deliver(1, packets[0]);
  }
  std::vector<FlowArrival> arrivals(size_t at_once = 4) {
    std::vector<FlowArrival> some(at_once);
    some.resize(pair_.nic(1).poll_arrivals(some));
    return some;
  }

  SoftNicPair pair_;
  SoftNicPair::Ends ends_ = pair_.connect();
};

TEST_F(SoftNicArrivals, AreReportedWithTheShortestTransitAndItsPacket) {
  pair_.nic(1).report_arrivals(true);
  const auto transit = [](Duration time) { return static_cast<uint32_t>(time.ns()); };
  arrive(ends_, 1000, Duration::from_us(5));
  arrive(ends_, 100, Duration::from_us(2));
  arrive(ends_, 700, Duration::from_us(9));
  auto told = arrivals();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].flow, 0U);
  EXPECT_EQ(told[0].bytes, 1800U);
  EXPECT_EQ(told[0].transit_ns, transit(Duration::from_us(2)));
  EXPECT_EQ(told[0].timed_bytes, 100U);
  EXPECT_TRUE(arrivals().empty());
  arrive(ends_, 300, Duration::from_us(7));
  told = arrivals();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].bytes, 300U) << "since the last report";
  EXPECT_EQ(told[0].transit_ns, transit(Duration::from_us(7)));
  EXPECT_EQ(told[0].timed_bytes, 300U);
}

TEST_F(SoftNicArrivals, AreReportedOfEachFlow) {
  pair_.nic(1).report_arrivals(true);
  const auto other = pair_.connect({.flow = 2});
  const auto word = pair_.connect({.flow = 3, .paced = false});
  arrive(ends_, 10, Duration::from_us(5));
  arrive(other, 20, Duration::from_us(5));
  arrive(word, 30, Duration::from_us(5));
  for (const auto& [flow, bytes] : {std::pair{0U, 10U}, {2U, 20U}}) {
    const auto told = arrivals(1);
    ASSERT_EQ(told.size(), 1U);
    EXPECT_EQ(told[0].flow, flow);
    EXPECT_EQ(told[0].bytes, bytes);
  }
  EXPECT_TRUE(arrivals().empty()) << "words count for no flow";
}

TEST_F(SoftNicArrivals, AreNotReportedUnlessTheyAreWanted) {
  arrive(ends_, 10, Duration::from_us(5));
  EXPECT_TRUE(arrivals().empty());
}

TEST(SoftNicArrivalsOfStandardRc, AreReportedWithoutTimes) {
  SoftNicPair pair{test::rc_config()};
  const auto ends = pair.connect();
  const auto word = pair.connect({.flow = 1, .paced = false});
  pair.nic(1).report_arrivals(true);
  const auto& from = pair.memory(0, 3 * kMtu);
  const auto& to = pair.memory(1, 3 * kMtu);
  pair.post(0, ends[0], SoftNicPair::write(from, to, 3 * kMtu));
  pair.post(0, word[0], SoftNicPair::write(from, to, 8));
  ASSERT_TRUE(pair.run_until_completed(0, 2));
  std::array<FlowArrival, 4> told;
  ASSERT_EQ(pair.nic(1).poll_arrivals(told), 1U);
  EXPECT_EQ(told[0].bytes, 3 * kMtu);
  EXPECT_EQ(told[0].timed_bytes, 0U);
}

TEST(SoftNicSignals, KeepTheNewestRoundTripThatIsKnown) {
  SoftNicPair pair{test::rc_config()};
  const auto ends = pair.connect({.receives = 0});
  const auto& from = pair.memory(0, 2 * kMtu);
  const auto& to = pair.memory(1, 2 * kMtu);
  pair.post(0, ends[0], SoftNicPair::write(from, to, 1));
  pair.post(0, ends[0], SoftNicPair::write(from, to, 2 * kMtu));
  const auto sent = pair.transmit(0);
  ASSERT_EQ(sent.size(), 3U);
  pair.now = pair.now + Duration::from_us(30);
  for (const size_t place : {0, 1}) {  // the second has not asked
    pair.deliver(0, forge(1, {.opcode = roce::Opcode::kAck,
                              .syndrome = roce::kAckUnlimited,
                              .destination_qp = ends[0],
                              .psn = parse(sent[place]).psn}));
  }
  FlowSignal signal;
  ASSERT_EQ(pair.nic(0).poll_signals({&signal, 1}), 1U);
  EXPECT_EQ(signal.rtt, Duration::from_us(30));
  EXPECT_EQ(signal.acked, kMtu + 1);
  EXPECT_FALSE(signal.echo_marked);
  EXPECT_EQ(pair.nic(0).poll_signals({&signal, 1}), 0U);
}

TEST(SoftNicSignals, AFlowThatHasEndedBeginsAnew) {
  SoftNicPair pair;
  const auto& from = pair.memory(0, 2 * kMtu);
  const auto& to = pair.memory(1, 2 * kMtu);
  for (const Bytes bytes : {2 * kMtu, kMtu}) {
    const auto ends = pair.connect();
    pair.post(0, ends[0], SoftNicPair::write(from, to, bytes));
    ASSERT_TRUE(pair.run_until_completed(0, 1));
    FlowSignal signal;
    ASSERT_EQ(pair.nic(0).poll_signals({&signal, 1}), 1U);
    EXPECT_EQ(signal.sent, bytes) << "what was sent before is not its own";
    pair.completions[0].clear();
    for (size_t side = 0; side < 2; ++side) pair.nic(side).destroy_queue_pair(ends[side]);
  }
}

TEST(SoftNicHalted, AQueuePairTakesNothingMore) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto& from = pair.memory(0, 64, Access::kLocalRead, 7);
  const auto& to = pair.memory(1, 64);
  pair.post(0, ends[0], SoftNicPair::write(from, to, 64));
  pair.nic(1).halt_queue_pair(ends[1]);
  for (const Datagram& packet : pair.transmit(0)) pair.deliver(1, packet);
  EXPECT_NE(to.bytes, from.bytes);
  EXPECT_EQ(pair.nic(1).counters().unknown_queue_pair, 1U);
  EXPECT_EQ(pair.post(1, ends[1], SoftNicPair::write(to, from, 8)), 0U);
}

// Another queue pair with the same peer is asked for its round trip.
TEST(SoftNicSiblings, OneThatIsGoneIsAskedNothing) {
  SoftNicPair pair;
  const auto ends = pair.connect();
  const auto gone = pair.connect();
  pair.nic(0).destroy_queue_pair(gone[0]);
  pair.post(0, ends[0], SoftNicPair::write(pair.memory(0, 8), pair.memory(1, 8), 8));
  EXPECT_TRUE(pair.run_until_completed(0, 1));
}

TEST(SoftNicFull, WhatCompletesIsDroppedWhileNobodyPolls) {
  SoftNicConfig config = StandardPair::service_config();
  config.completions = 1;
  StandardPair pair(config);
  const auto ends = pair.join();
  auto& from = pair.memory(0, 64);
  auto& to = pair.memory(1, 64, Access::kLocalWrite);
  for (const uint64_t id : {1, 2}) {
    const auto receive = StandardPair::receive(to, id);
    ASSERT_EQ(pair.nic(1).post_receives(ends[1], {&receive, 1}), 1U);
    pair.post(0, ends[0], StandardPair::send(from, 8, id));
  }
  for (const Datagram& packet : pair.transmit_for(0, Duration::from_us(1))) {
    pair.deliver(1, packet);
  }
  EXPECT_EQ(pair.nic(1).counters().completions_full, 1U);
  EXPECT_EQ(pair.nic(1).counters().data_packets_received, 1U);
  EXPECT_TRUE(pair.run_until_completed(1, 2)) << "it comes again";
}

// --- queue pairs that programs bring up ---

TEST(SoftNicReceiveQueues, ArePlacesThatAreUsedAgain) {
  StandardPair pair;  // with two receive queues
  SoftNic& nic = pair.nic(0);
  const ReceiveQueueId first = nic.create_receive_queue(4).value();
  EXPECT_NE(nic.create_receive_queue(4).value(), first);
  EXPECT_FALSE(nic.create_receive_queue(4));
  nic.destroy_receive_queue(first);
  EXPECT_EQ(nic.create_receive_queue(4).value(), first);
}

TEST(SoftNicReceiveQueues, AConnectionMakesItsFlow) {
  StandardPair pair;
  const auto id = pair.nic(0).create_queue_pair(StandardPair::kUsual).value();
  const StandardPeer peer{
      .flow = 3, .gid = test::test_address(2).ip, .queue_pair = 77, .mtu = 1024};
  EXPECT_TRUE(pair.nic(0).connect_standard(id, peer));
  pair.nic(0).destroy_queue_pair(id);
}

TEST(SoftNicDatagramsAreCounted, AtBothEndsAndCompletedAsWanted) {
  StandardPair pair;
  SoftNicPair::Ends ends{};
  for (size_t side = 0; side < 2; ++side) {
    const QueuePairConfig config{.work_requests = 4, .receives = 4, .service = Service::kDatagram};
    ends[side] = pair.nic(side).create_queue_pair(config).value();
    pair.nic(side).open_datagrams(ends[side], 5);
  }
  auto& from = pair.memory(0, 100);
  auto& to = pair.memory(1, 200, Access::kLocalWrite);
  for (const uint64_t id : {1, 2}) {
    const auto receive = StandardPair::receive(to, id);
    ASSERT_EQ(pair.nic(1).post_receives(ends[1], {&receive, 1}), 1U);
    pacecar::Datagram datagram{.send = StandardPair::send(from, 100, id),
                               .gid = test::test_address(2).ip,
                               .queue_pair = ends[1],
                               .queue_key = 5};
    datagram.send.signaled = id == 2;
    ASSERT_EQ(pair.nic(0).post_datagrams(ends[0], {&datagram, 1}), 1U);
  }
  pair.run_for(Duration::from_us(50));
  EXPECT_EQ(pair.nic(0).counters().data_packets_sent, 2U);
  EXPECT_EQ(pair.nic(0).counters().data_bytes_sent, 200U);
  EXPECT_EQ(pair.nic(1).counters().data_packets_received, 2U);
  EXPECT_EQ(pair.nic(1).counters().data_bytes_received, 200U);
  ASSERT_EQ(pair.completions[0].size(), 1U);
  EXPECT_EQ(pair.completions[0][0].work_request, 2U);
  EXPECT_EQ(pair.completions[1].size(), 2U);
}

TEST(SoftNicReset, DropsWhatTheQueuePairHadReceived) {
  StandardPair pair;
  const auto ends = pair.join();
  const auto other = pair.join();
  auto& from = pair.memory(0, 64, Access::kLocalRead);
  auto& to = pair.memory(1, 64, Access::kLocalWrite);
  for (const auto& [by, id] : {std::pair{ends, 1}, {other, 2}, {ends, 3}}) {
    const auto receive = StandardPair::receive(to, static_cast<uint64_t>(id));
    ASSERT_EQ(pair.nic(1).post_receives(by[1], {&receive, 1}), 1U);
    pair.post(0, by[0], StandardPair::send(from, 64, 1));
    for (const Datagram& packet : pair.transmit_for(0, Duration::from_us(1))) {
      pair.deliver(1, packet);
    }
  }
  pair.nic(1).reset_queue_pair(ends[1]);
  std::array<Completion, 4> left;
  ASSERT_EQ(pair.nic(1).poll(left), 1U);
  EXPECT_EQ(left[0].work_request, 2U);
}

TEST(SoftNicReads, ReadsAreCountedAtBothEnds) {
  StandardPair pair;
  const auto ends = pair.join();
  auto& here = pair.memory(0, 3 * kMtu, Access::kLocalWrite);
  auto& there = pair.memory(1, 3 * kMtu, Access::kRemoteRead);
  WorkRequest read = StandardPair::write(here, there, 2 * kMtu + 10, 1);
  read.opcode = Opcode::kRead;
  pair.post(0, ends[0], read);
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  const NicCounters& reader = pair.nic(0).counters();
  const NicCounters& read_from = pair.nic(1).counters();
  EXPECT_EQ(reader.data_packets_sent, 1U) << "the request";
  EXPECT_EQ(reader.data_bytes_sent, 0U);
  EXPECT_EQ(reader.data_packets_received, 3U);
  EXPECT_EQ(reader.data_bytes_received, 2 * kMtu + 10);
  EXPECT_EQ(read_from.data_packets_sent, 3U);
  EXPECT_EQ(read_from.data_bytes_sent, 2 * kMtu + 10);
  EXPECT_EQ(read_from.acks_sent, 0U);
}

}  // namespace
}  // namespace pacecar::turns_test
