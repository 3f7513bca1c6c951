// What holds SoftNic back: window, credit, and timeouts where they apply.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "tests/support/soft_nic_traffic.h"
#include "tests/support/wire_reencode.h"

namespace pacecar::test::limits_test {
namespace {

// A word alone is acknowledged after as long as the policy allows: no sign of a loss.
TEST(SoftNicLoss, ControlWordsHaveNoPacketTimeout) {
  SoftNicConfig config = experiment();
  config.loss.packet_timeout = Duration::from_us(50);
  Traffic traffic(config);
  const auto control =
      traffic.pair.connect({.traffic_class = TrafficClass::kControl, .paced = false});
  traffic.pair.post(0, control[0], SoftNicPair::write(traffic.from, traffic.to, 8));
  ASSERT_TRUE(traffic.pair.run_until_completed(0, 1));
  EXPECT_EQ(traffic.pair.nic(0).counters().packets_retransmitted, 0U);
}

// An acknowledgement of control words may be longer than any of data, where data's window is small.
TEST(SoftNicTurns, OfOnePacketHaveRoomForEveryAcknowledgement) {
  SoftNicConfig config = SoftNicPair::default_config();
  config.window_packets = 64;
  config.transmit_packets = 1;
  SoftNicPair pair(config);
  const auto control = pair.connect({.traffic_class = TrafficClass::kControl, .paced = false});
  pair.post(0, control[0], SoftNicPair::write(pair.memory(0, 8), pair.memory(1, 8), 8));
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  EXPECT_EQ(pair.nic(0).counters().timeouts, 0U);
}

class SoftNicOneWay : public ::testing::Test {
 protected:
  static constexpr QueuePairConfig kReceives{.posts = false};

  SoftNicOneWay() : ends_{create(0, {}), create(1, kReceives)} {
    for (size_t side = 0; side < 2; ++side) {
      const auto peer = pair_.nic(1 - side).queue_pair_address(ends_[1 - side]);
      EXPECT_TRUE(pair_.nic(side).connect_queue_pair(ends_[side], peer.view()));
    }
  }
  QueuePairId create(size_t side, const QueuePairConfig& config) {
    pair_.limit(side, 0, {.rate = Rate::from_gbps(1000), .window = Bytes{1} << 40});
    return pair_.nic(side).create_queue_pair(config).value();
  }
  void move_data() {
    constexpr Bytes kBytes = 500 * 1024;  // more than a window
    const auto& from = pair_.memory(0, kBytes, Access::kLocalRead, 3);
    const auto& to = pair_.memory(1, kBytes);
    pair_.post(0, ends_[0], SoftNicPair::write(from, to, kBytes, 1, 7));
    ASSERT_TRUE(pair_.run_until_completed(0, 1));
    EXPECT_EQ(to.bytes, from.bytes);
  }

  SoftNicPair pair_;
  SoftNicPair::Ends ends_;
};

TEST_F(SoftNicOneWay, TheEndThatReceivesOnlyIsSmall) {
  const QueuePairMemory both = pair_.nic(1).queue_pair_memory({});
  const QueuePairMemory one = pair_.nic(1).queue_pair_memory(kReceives);
  EXPECT_LT(one.queues, both.queues / 10);
  EXPECT_LT(one.state, both.state);
}

TEST_F(SoftNicOneWay, DataArrivesWherePostingIsRefused) {
  EXPECT_EQ(pair_.post(1, ends_[1], WorkRequest{}), 0U);
  move_data();
}

TEST_F(SoftNicOneWay, AnswersToWhatWasNeverSentChangeNothing) {
  const std::array<uint64_t, 4> all{~0ULL, ~0ULL, ~0ULL, ~0ULL};
  Prng prng(1);
  for (int i = 0; i < 1000; ++i) {
    const auto psn = static_cast<uint32_t>(prng.below(1 << 24));
    const wire::AckHeader ack{
        .destination_qp = ends_[1], .cumulative = psn, .echo_psn = psn, .echo_valid = true};
    pair_.deliver(1, {.bytes = wire::encode_ack(ack, all)});
    pair_.deliver(1, {.bytes = wire::encode_nak({.destination_qp = ends_[1], .psn = psn})});
  }
  EXPECT_TRUE(pair_.transmit(1).empty());
  move_data();
}

TEST(SoftNicCredit, FlowSleepsUntilItHasCredit) {
  Traffic traffic(experiment());
  FlowLimits limits{
      .rate = Rate::from_gbps(1000), .window = Bytes{1} << 40, .credit = 2 * kMtu + 1};
  traffic.pair.limit(0, 0, limits);
  traffic.post();
  const auto packets = traffic.send();
  ASSERT_EQ(packets.size(), 3U) << "at most one packet more";
  EXPECT_TRUE(packets[2].data().ack_request) << "the last that may go";
  EXPECT_FALSE(packets[0].data().ack_request);
  traffic.deliver(1, packets);
  traffic.deliver(0, traffic.pair.transmit(1));
  EXPECT_TRUE(traffic.send().empty()) << "nothing in flight is no permission";
  EXPECT_EQ(traffic.signal().sent, 3 * kMtu);
  limits.credit = 4 * kMtu;
  traffic.pair.limit(0, 0, limits);
  EXPECT_EQ(traffic.send().size(), 1U);
}

// Its sender would otherwise take the wait for gathered acknowledgements for silence.
TEST(SoftNicAcks, PacketsThatAreFarApartAskForTheirs) {
  for (const uint64_t mbps : {10, 100'000}) {
    Traffic traffic(experiment());
    traffic.pair.limit(0, 0, {.rate = Rate::from_bps(mbps * 1'000'000), .window = Bytes{1} << 40});
    traffic.post();
    const auto packets = traffic.send();
    ASSERT_FALSE(packets.empty());
    EXPECT_EQ(packets[0].data().ack_request, mbps == 10) << mbps;
  }
}

// What nobody waits for, or others follow, may be acknowledged with more.
TEST(SoftNicAcks, OnlyTheLastOfWhatIsAwaitedAsksForOne) {
  for (const bool awaited : {true, false}) {
    Traffic traffic(experiment(), 3);
    WorkRequest write = SoftNicPair::write(traffic.from, traffic.to, 3 * kMtu);
    write.awaited = awaited;
    for (int i = 0; i < 2; ++i) traffic.pair.post(0, traffic.ends[0], write);
    const auto packets = traffic.send();
    ASSERT_EQ(packets.size(), 6U);
    for (size_t i = 0; i < 5; ++i) EXPECT_FALSE(packets[i].data().ack_request) << i;
    EXPECT_EQ(packets[5].data().ack_request, awaited);
  }
}

// As a put and the record behind it, for which nobody waits.
TEST(SoftNicAcks, WhatFollowsAnAwaitedWriteAsksInItsPlace) {
  Traffic traffic(experiment(), 3);
  WorkRequest write = SoftNicPair::write(traffic.from, traffic.to, 3 * kMtu);
  for (const bool awaited : {true, false}) {
    write.awaited = awaited;
    traffic.pair.post(0, traffic.ends[0], write);
  }
  const auto packets = traffic.send();
  ASSERT_EQ(packets.size(), 6U);
  EXPECT_FALSE(packets[2].data().ack_request);
  EXPECT_TRUE(packets[5].data().ack_request);
}

// The sender may wait for each long write; it does not wait for writes from copies.
TEST(SoftNicAcks, EachLongWriteAsksIfItIsAwaited) {
  constexpr size_t kPackets = 32 * 1024 / kMtu;
  for (const bool awaited : {true, false}) {
    Traffic traffic(experiment(), kPackets);
    WorkRequest write = SoftNicPair::write(traffic.from, traffic.to, kPackets * kMtu);
    write.awaited = awaited;
    for (int i = 0; i < 2; ++i) traffic.pair.post(0, traffic.ends[0], write);
    const auto packets = traffic.send();
    ASSERT_EQ(packets.size(), 2 * kPackets);
    EXPECT_EQ(packets[kPackets - 1].data().ack_request, awaited);
    EXPECT_EQ(packets[2 * kPackets - 1].data().ack_request, awaited);
  }
}

// The results of such an acknowledgement are there at once: no further turn is due.
TEST(SoftNicAcks, OfAllThatWasSentMakeNothingDue) {
  Traffic traffic(experiment());
  traffic.post();
  traffic.deliver(1, traffic.send());
  const auto answers = traffic.pair.transmit(1);
  ASSERT_FALSE(answers.empty());
  traffic.deliver(0, answers);
  EXPECT_GT(traffic.pair.nic(0).next_deadline(), traffic.pair.now);
}

TEST(SoftNicAcks, OfAFlowWithAQueuePairThatIsNotConnectedMakeNothingDue) {
  Traffic traffic(experiment());
  traffic.pair.nic(0).create_queue_pair({}).value();
  traffic.post();
  traffic.deliver(1, traffic.send());
  traffic.deliver(0, traffic.pair.transmit(1));
  EXPECT_GT(traffic.pair.nic(0).next_deadline(), traffic.pair.now);
}

// One acknowledgement of all packets, which echoes the last: each frees its place on its path,
// once.
TEST(SoftNicPaths, EachPacketThatIsAcknowledgedCountsOnce) {
  constexpr size_t kPackets =
      12;  // on some paths two, and the echoed one is the second of its path
  SoftNicConfig config = experiment();
  config.paths = 8;
  config.path_policy = PathPolicy::kBalanced;
  Traffic traffic(config, kPackets);
  const auto paths_of = [](const std::vector<Datagram>& packets) {
    std::vector<uint16_t> paths;
    std::ranges::transform(packets, std::back_inserter(paths), &Datagram::path);
    return paths;
  };
  traffic.post();
  const auto packets = traffic.send();
  ASSERT_EQ(packets.size(), kPackets);
  traffic.deliver(1, packets);
  const auto answers = traffic.pair.transmit(1);
  ASSERT_EQ(answers.size(), 1U);
  traffic.deliver(0, answers);
  traffic.post(2);
  traffic.post(3);
  const auto then = paths_of(traffic.send());
  ASSERT_GT(then.size(), kPackets);
  auto first = paths_of(packets);
  const uint16_t echoed = first.back();
  std::ranges::sort(first);
  std::vector<uint16_t> again(then.begin(), then.begin() + kPackets);
  std::ranges::sort(again);
  EXPECT_EQ(again, first);
  EXPECT_NE(then[kPackets], echoed) << "a path whose turn it is";
}

TEST(SoftNicWindow, APacketGoesOnlyWhenAllOfItFits) {
  Traffic traffic(experiment());
  traffic.pair.limit(0, 0, {.rate = Rate::from_gbps(1000), .window = 3 * kMtu - 1});
  traffic.post();
  const auto packets = traffic.send();
  ASSERT_EQ(packets.size(), 2U);
  EXPECT_FALSE(packets[0].data().ack_request);
  EXPECT_TRUE(packets[1].data().ack_request) << "the last that may go";
}

TEST(SoftNicWindow, WithNothingInFlightOnePacketMayGo) {
  Traffic traffic(experiment());
  traffic.pair.limit(0, 0, {.rate = Rate::from_gbps(1000), .window = 1});
  traffic.post();
  EXPECT_EQ(traffic.send().size(), 1U);
}

TEST(SoftNicWindow, AShortPacketNeedsLittleRoom) {
  Traffic traffic(experiment(), 1);
  traffic.pair.limit(0, 0, {.rate = Rate::from_gbps(1000), .window = kMtu + 100});
  traffic.post();
  traffic.pair.post(0, traffic.ends[0], SoftNicPair::write(traffic.from, traffic.to, 100));
  EXPECT_EQ(traffic.send().size(), 2U);
}

// A flow that has nothing to send, or no credit, shares the link with nobody.
TEST(SoftNicCredit, SendingIsSignalledWithTheFlowsThatShareTheLink) {
  Traffic traffic(experiment());
  const FlowLimits limits{
      .rate = Rate::from_gbps(1000), .window = Bytes{1} << 40, .credit = 4 * kMtu};
  std::array<SoftNicPair::Ends, 4> ends{traffic.ends};
  for (uint32_t flow = 1; flow < ends.size(); ++flow) {
    ends[flow] = traffic.pair.connect({.flow = flow});
  }
  for (uint32_t flow = 0; flow < ends.size(); ++flow) traffic.pair.limit(0, flow, limits);
  FlowLimits none = limits;
  none.credit = 0;
  traffic.pair.limit(0, 3, none);
  EXPECT_TRUE(traffic.send().empty());
  for (const uint32_t flow : {0, 1, 3}) {  // the third has nothing to send
    traffic.pair.post(0, ends[flow][0], SoftNicPair::write(traffic.from, traffic.to, 2 * kMtu));
  }
  std::array<TxPacket, 1> packet;
  ASSERT_EQ(traffic.pair.nic(0).poll_transmit(traffic.pair.now, packet), 1U);
  const FlowSignal signal = traffic.signal();
  EXPECT_EQ(signal.sent, kMtu);
  EXPECT_EQ(signal.sharing, 2U);
  traffic.send();
  EXPECT_GT(traffic.signal().sharing, 0U);
}

TEST(SoftNicCredit, WithoutItOnlyTheEndOfWhatWasPostedIsSignalled) {
  Traffic traffic(experiment());
  traffic.post();
  std::array<TxPacket, 1> packet;
  ASSERT_EQ(traffic.pair.nic(0).poll_transmit(traffic.pair.now, packet), 1U);
  EXPECT_EQ(traffic.signal().sent, 0U);
  ASSERT_EQ(traffic.send().size(), 7U);
  EXPECT_EQ(traffic.signal().in_flight, 8 * kMtu);
}

TEST(SoftNicCredit, RepetitionsSpendIt) {
  Traffic traffic(experiment());
  traffic.pair.limit(0, 0,
                     {.rate = Rate::from_gbps(1000), .window = Bytes{1} << 40, .credit = 8 * kMtu});
  traffic.post();
  auto packets = traffic.send();
  ASSERT_EQ(packets.size(), 8U);
  packets[0].trim();
  traffic.pair.deliver(1, packets[0]);
  traffic.deliver(0, traffic.pair.transmit(1));
  EXPECT_TRUE(traffic.send().empty());
  traffic.pair.limit(0, 0,
                     {.rate = Rate::from_gbps(1000), .window = Bytes{1} << 40, .credit = 9 * kMtu});
  ASSERT_EQ(traffic.send().size(), 1U);
}

// 90 us late, where a packet is due every 9.
TEST(SoftNicPacing, LateHostMakesGoodForItWithoutABurst) {
  for (const bool real : {false, true}) {
    SoftNicConfig config = experiment();
    config.jitter = Duration::from_us(real ? 100 : 0);  // a simulated host is never late
    Traffic traffic(config, 400);
    const Rate rate = Rate::from_gbps(1);
    traffic.pair.limit(0, 0, {.rate = rate, .window = Bytes{1} << 40});
    traffic.post();
    const Instant begin = traffic.pair.now;
    size_t sent = traffic.send().size();
    traffic.pair.now = traffic.pair.now + Duration::from_us(90);
    const size_t at_once = traffic.send().size();
    EXPECT_EQ(at_once, real ? 1U : 4U);
    sent += at_once + traffic.pair.transmit_for(0, Duration::from_ms(1)).size();
    const auto gap = rate.time_for(kMtu + traffic.pair.nic(0).caps().packet_overhead);
    const auto due = static_cast<size_t>((traffic.pair.now - begin).ns() / gap.ns() + 1);
    EXPECT_EQ(sent, real ? due : due - 6) << "what is later than four packets is lost";
  }
}

TEST(SoftNicPacing, FlowIsMovedToItsGrid) {
  Traffic traffic(experiment(), 4);
  const Rate rate = Rate::from_gbps(1);
  const auto gap = rate.time_for(kMtu + traffic.pair.nic(0).caps().packet_overhead);
  const SendGrid grid{.point = traffic.pair.now + Duration::from_us(3), .period = gap};
  traffic.pair.limit(0, 0, {.rate = rate, .grid = grid, .window = Bytes{1} << 40});
  traffic.post();
  const auto packets = traffic.pair.transmit_for(0, gap * 5);
  ASSERT_EQ(packets.size(), 4U);
  EXPECT_EQ(packets[0].sent, grid.point);
}

// It was idle: that is nothing to make good for.
TEST(SoftNicPacing, IdleFlowDoesNotHurry) {
  SoftNicConfig config = experiment();
  config.jitter = Duration::from_us(100);
  Traffic traffic(config, 1);
  const Rate rate = Rate::from_gbps(1);
  traffic.pair.limit(0, 0, {.rate = rate, .window = Bytes{1} << 40});
  traffic.post();
  EXPECT_EQ(traffic.send().size(), 1U);
  traffic.pair.now = traffic.pair.now + Duration::from_ms(1);
  traffic.count = 1;
  for (uint64_t id = 2; id < 60; ++id) traffic.post(id);
  const auto gap = rate.time_for(kMtu + traffic.pair.nic(0).caps().packet_overhead);
  EXPECT_LE(traffic.pair.transmit_for(0, gap * 40).size(), 41U + 4U);
}

}  // namespace
}  // namespace pacecar::test::limits_test
