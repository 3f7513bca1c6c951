// SoftNic in a fabric whose switches change packets (trim, mark, stamp them), and with the
// policies that experiments choose: acknowledgements, loss recovery, paths.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "tests/support/soft_nic_traffic.h"

namespace pacecar::test::traffic_test {
namespace {

using wire::PacketKind;

TEST(SoftNicTrimming, ReceiverAsksAndTheSenderRepeatsAtOnce) {
  Traffic traffic(experiment());
  traffic.post();
  auto packets = traffic.send();
  ASSERT_EQ(packets.size(), 8U);
  const auto whole = packets;
  for (const size_t i : {2, 3, 7}) packets[i].trim();
  traffic.deliver(1, packets);
  EXPECT_EQ(traffic.pair.nic(1).counters().trimmed_packets, 3U);
  traffic.pair.now = traffic.pair.now + SoftNicPair::kDelay;
  const auto answers = traffic.pair.transmit(1);
  EXPECT_EQ(std::ranges::count(answers, PacketKind::kNak, &Datagram::kind), 3);
  traffic.deliver(0, answers);
  const FlowSignal signal = traffic.signal();
  EXPECT_EQ(signal.trimmed, 3 * kMtu);
  EXPECT_EQ(signal.lost, 0U);
  EXPECT_EQ(signal.sent, 8 * kMtu);
  const auto elapsed = static_cast<uint32_t>(traffic.pair.now.ns()) - whole[7].data().timestamp;
  EXPECT_EQ(signal.trimmed_rtt, Duration::from_ns(elapsed)) << "of the newest";
  const auto again = traffic.send();
  ASSERT_EQ(again.size(), 3U);
  EXPECT_EQ(again[0].data().psn, whole[2].data().psn);
  EXPECT_EQ(again[1].data().psn, whole[3].data().psn);
  EXPECT_EQ(again[2].data().psn, whole[7].data().psn);
  traffic.deliver(1, again);
  ASSERT_TRUE(traffic.pair.run_until_completed(0, 1));
  EXPECT_EQ(traffic.to.bytes, traffic.from.bytes);
  EXPECT_EQ(traffic.signal().sent, 11 * kMtu);
}

TEST(SoftNicTrimming, IsSignalledWithTheSearchForABetterPathThatItBegins) {
  for (const PathPolicy policy : {PathPolicy::kReroute, PathPolicy::kBalanced}) {
    SoftNicConfig config = experiment();
    config.paths = 8;
    config.path_policy = policy;
    Traffic traffic(config);
    traffic.post();
    auto packets = traffic.send();
    packets[0].trim();
    traffic.pair.deliver(1, packets[0]);
    traffic.deliver(0, traffic.pair.transmit(1));
    const FlowSignal signal = traffic.signal();
    EXPECT_EQ(signal.trimmed, kMtu);
    EXPECT_EQ(signal.rerouting, policy == PathPolicy::kReroute);
  }
}

TEST(SoftNicTrimming, RemainsOfWhatHasArrivedAreAcknowledged) {
  Traffic traffic(experiment());
  traffic.post();
  const auto packets = traffic.send();
  traffic.pair.deliver(1, packets[0]);
  Datagram late = packets[0];
  late.trim();
  traffic.pair.deliver(1, late);
  const auto answers = traffic.pair.transmit(1);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].kind(), PacketKind::kAck);
  traffic.deliver(0, answers);
  EXPECT_EQ(traffic.signal().acked, kMtu);
}

// The acknowledgement reports the newest packet, which has not been acknowledged yet.
TEST(SoftNicTrimming, RemainsDoNotHideTheNewestPacket) {
  Traffic traffic(experiment());
  traffic.post();
  const auto packets = traffic.send();
  traffic.pair.deliver(1, packets[0]);
  Datagram late = packets[0];
  late.trim();
  traffic.pair.deliver(1, late);
  traffic.pair.now = traffic.pair.now + SoftNicPair::kDelay;
  const auto answers = traffic.pair.transmit(1);
  traffic.deliver(0, answers);
  EXPECT_GT(traffic.signal().rtt, Duration());
  traffic.pair.deliver(1, late);  // now it has been acknowledged
  traffic.pair.now = traffic.pair.now + SoftNicPair::kDelay;
  traffic.deliver(0, traffic.pair.transmit(1));
  EXPECT_EQ(traffic.signal().rtt, Duration());
}

// A newer sending of the packet is on its way: only that one can be lost now.
TEST(SoftNicTrimming, RefusalOfAnOlderSendingIsIgnored) {
  Traffic traffic(experiment());
  traffic.post();
  auto packets = traffic.send();
  packets[0].trim();
  traffic.pair.deliver(1, packets[0]);
  const auto naks = traffic.pair.transmit(1);
  ASSERT_EQ(naks.size(), 1U);
  traffic.pair.now = traffic.pair.now + SoftNicPair::kDelay;
  traffic.deliver(0, naks);
  EXPECT_EQ(traffic.send().size(), 1U);
  traffic.deliver(0, naks);
  EXPECT_EQ(traffic.send().size(), 0U);
}

TEST(SoftNicTrimming, ForgedRemainsAreDropped) {
  Traffic traffic(experiment());
  traffic.post();
  auto packets = traffic.send();
  packets[0].trim();
  Datagram far = packets[0];
  far.bytes[9] ^= 0x40;  // the PSN
  traffic.pair.deliver(1, far);
  EXPECT_EQ(traffic.pair.nic(1).counters().out_of_window, 1U);
  Datagram unknown = packets[0];
  unknown.bytes[6] ^= 0xFF;  // the queue pair
  traffic.pair.deliver(1, unknown);
  EXPECT_EQ(traffic.pair.nic(1).counters().unknown_queue_pair, 1U);
  traffic.pair.deliver(1, packets[0], test_address(9));
  EXPECT_EQ(traffic.pair.nic(1).counters().wrong_source, 1U);
  Datagram cut = packets[0];
  cut.bytes.pop_back();
  traffic.pair.deliver(1, cut);
  EXPECT_EQ(traffic.pair.nic(1).counters().malformed, 1U);
  EXPECT_TRUE(traffic.pair.transmit(1).empty());
}

TEST(SoftNicTrimming, EveryPacketTrimmedManyTimesArrives) {
  Traffic traffic(experiment(), 64);
  Prng prng(5);
  traffic.pair.lose = [&](size_t, Datagram& packet) {
    if (packet.kind() == PacketKind::kData && prng.chance(0.7)) packet.trim();
    return false;
  };
  traffic.post();
  ASSERT_TRUE(traffic.pair.run_until_completed(0, 1, Duration::from_ms(2)));
  EXPECT_EQ(traffic.to.bytes, traffic.from.bytes);
}

TEST(SoftNicEcho, AnAcknowledgementTellsOfOnePacket) {
  SoftNicConfig config = experiment();
  config.ack.every_packet = true;
  Traffic traffic(config);
  traffic.post();
  auto packets = traffic.send();
  const std::vector<TelemetryHop> hops = {{1, 2, 3, 400'000}, {5, 6, 7, 100'000}};
  packets[1].ecn = Ecn::kCongestion;
  packets[1].telemetry = hops;
  for (size_t i = 0; i < 3; ++i) {
    traffic.pair.deliver(1, packets[i]);
    traffic.deliver(0, traffic.pair.transmit(1));
    const FlowSignal signal = traffic.signal();
    EXPECT_EQ(signal.acked, kMtu);
    EXPECT_EQ(signal.echo_marked, i == 1);
    ASSERT_EQ(signal.hops, i == 1 ? 2 : 0);
    EXPECT_TRUE(std::equal(hops.begin(), hops.begin() + signal.hops, signal.telemetry.begin()));
  }
}

TEST(SoftNicEcho, TelemetryIsBoundedAndChecked) {
  SoftNicConfig config = experiment();
  config.ack.every_packet = true;
  Traffic traffic(config);
  traffic.post();
  auto packets = traffic.send();
  packets[0].telemetry.assign(20, {.rate_mbps = 1});
  packets[1].telemetry = {{.rate_mbps = 1}, {.rate_mbps = 0}, {.rate_mbps = 1}};
  for (size_t i = 0; i < 2; ++i) {
    traffic.pair.deliver(1, packets[i]);
    traffic.deliver(0, traffic.pair.transmit(1));
    EXPECT_EQ(traffic.signal().hops, i == 0 ? kMaxTelemetryHops : 1);
  }
  EXPECT_EQ(traffic.pair.nic(0).counters().malformed, 0U);
}

TEST(SoftNicPaths, AcknowledgementsTakeOneAfterAnother) {
  SoftNicConfig config = experiment();
  config.ack.every_packet = true;
  config.paths = 3;
  Traffic traffic(config);
  traffic.post();
  std::vector<uint16_t> paths;
  for (const Datagram& packet : traffic.send()) {
    traffic.pair.deliver(1, packet);
    for (const Datagram& answer : traffic.pair.transmit(1)) paths.push_back(answer.path);
  }
  EXPECT_EQ(paths, (std::vector<uint16_t>{0, 1, 2, 0, 1, 2, 0, 1}));
}

// Data, acknowledgements and control words alike.
TEST(SoftNicPaths, ADeadPathStopsNothing) {
  for (uint16_t dead = 0; dead < 4; ++dead) {
    for (const bool paced : {true, false}) {
      SoftNicConfig config = experiment();
      config.paths = 4;
      SoftNicPair pair(config);
      const auto ends = pair.connect({.paced = paced});
      const TestMemory& from = pair.memory(0, kMtu, Access::kLocalRead, 1);
      const TestMemory& to = pair.memory(1, kMtu);
      pair.lose = [&](size_t, const Datagram& packet) { return packet.path == dead; };
      for (size_t i = 1; i <= 20; ++i) {
        pair.post(0, ends[0], SoftNicPair::write(from, to, 8, i, 1));
        ASSERT_TRUE(pair.run_until_completed(0, i, Duration::from_ms(100)))
            << "path " << dead << " paced " << paced << " write " << i;
      }
    }
  }
}

TEST(SoftNicElided, PayloadCountsAsArrivedAndIsNotTouched) {
  SoftNicConfig config = experiment();
  config.full_checksum = false;
  Traffic traffic(config);
  const auto before = traffic.to.bytes;
  traffic.pair.lose = [](size_t, Datagram& packet) {
    if (packet.kind() == PacketKind::kData) packet.elide();
    return false;
  };
  traffic.post();
  ASSERT_TRUE(traffic.pair.run_until_completed(0, 1));
  EXPECT_TRUE(traffic.pair.run_until_completed(1, 1));
  EXPECT_EQ(traffic.pair.completions[1][0].bytes, 8 * kMtu);
  EXPECT_EQ(traffic.pair.nic(1).counters().data_bytes_received, 8 * kMtu);
  EXPECT_EQ(traffic.to.bytes, before);
}

TEST(SoftNicElided, MoreThanTheWorkRequestIsMalformed) {
  SoftNicConfig config = experiment();
  config.full_checksum = false;
  Traffic traffic(config, 1);
  traffic.post();
  auto packets = traffic.send();
  packets[0].elide();
  packets[0].elided += 1;
  traffic.deliver(1, packets);
  EXPECT_EQ(traffic.pair.nic(1).counters().malformed, 1U);
}

size_t acks_after(Traffic& traffic, const Datagram& packet) {
  traffic.pair.deliver(1, packet);
  return traffic.pair.transmit(1).size();
}

TEST(SoftNicAcks, ByBytesAndIdleness) {
  SoftNicConfig config = experiment();
  config.ack = {.bytes = 3 * kMtu, .out_of_order_at_once = false, .idle = Duration::from_ms(1)};
  Traffic traffic(config, 32);  // large enough that its end asks
  traffic.post(1, true);
  const auto packets = traffic.send();
  ASSERT_EQ(packets.size(), 32U);
  EXPECT_EQ(acks_after(traffic, packets[0]), 1U) << "the first of all";
  EXPECT_EQ(acks_after(traffic, packets[1]), 0U);
  EXPECT_EQ(acks_after(traffic, packets[3]), 0U) << "out of order alone is no reason";
  EXPECT_EQ(acks_after(traffic, packets[4]), 1U) << "three since the last one";
  for (size_t i = 5; i < 31; ++i) acks_after(traffic, packets[i]);
  EXPECT_EQ(acks_after(traffic, packets[31]), 1U) << "the end asks";
  EXPECT_EQ(acks_after(traffic, packets[2]), 1U) << "all that was missing when it asked is here";
  traffic.pair.now = traffic.pair.now + Duration::from_ms(2);
  EXPECT_EQ(traffic.pair.transmit(1).size(), 0U);
}

TEST(SoftNicAcks, WhenNothingMoreComes) {
  SoftNicConfig config = experiment();
  config.ack = {.bytes = 8 * kMtu, .quiet = Duration::from_us(10)};
  Traffic traffic(config);
  traffic.post();
  const auto packets = traffic.send();
  const auto acks_later = [&](Duration later) {
    traffic.pair.now = traffic.pair.now + later;
    return traffic.pair.transmit(1).size();
  };
  EXPECT_EQ(acks_after(traffic, packets[0]), 0U);
  EXPECT_EQ(acks_later(Duration::from_us(6)), 0U);
  EXPECT_EQ(acks_after(traffic, packets[1]), 0U);
  EXPECT_EQ(acks_later(Duration::from_us(6)), 0U) << "the newest has not waited enough";
  EXPECT_EQ(traffic.pair.nic(1).next_deadline(), traffic.pair.now + Duration::from_us(4));
  EXPECT_EQ(acks_later(Duration::from_us(4)), 1U);
}

TEST(SoftNicAcks, WithoutADelayNothingIsSentByTimeAlone) {
  SoftNicConfig config = experiment();
  config.ack.delay = Duration::max();
  Traffic traffic(config);
  traffic.post();
  const auto packets = traffic.send();
  EXPECT_EQ(acks_after(traffic, packets[0]), 0U);
  EXPECT_EQ(traffic.pair.nic(1).next_deadline(), Instant::never());
  EXPECT_TRUE(traffic.pair.transmit_for(1, Duration::from_ms(10)).empty());
}

TEST(SoftNicLoss, EachPacketTimesOutByItself) {
  constexpr Duration kTimeout = Duration::from_us(50);
  SoftNicConfig config = experiment();
  config.loss = {.reordering = Duration::max(), .packet_timeout = kTimeout};
  Traffic traffic(config);
  traffic.pair.limit(0, 0, {.rate = Rate::from_gbps(1), .window = Bytes{1} << 40});
  std::vector<Datagram> sent;
  std::set<uint32_t> lost;
  traffic.pair.lose = [&](size_t side, Datagram& packet) {
    if (side == 1) return false;
    sent.push_back(packet);
    return lost.insert(packet.data().psn).second && lost.size() % 2 == 1;  // every other, once
  };
  traffic.post();
  ASSERT_TRUE(traffic.pair.run_until_completed(0, 1));
  ASSERT_EQ(sent.size(), 12U);
  // No arrival of a later packet and no probe has repeated one before its time.
  for (size_t i = 0; i < sent.size(); ++i) {
    const auto first = std::ranges::find_if(
        sent, [&](const Datagram& packet) { return packet.data().psn == sent[i].data().psn; });
    if (first == sent.begin() + static_cast<long>(i)) continue;
    EXPECT_GE(sent[i].sent - first->sent, kTimeout);
    EXPECT_LE(sent[i].sent - first->sent, kTimeout + Duration::from_us(10));  // and its pace
  }
  const FlowSignal signal = traffic.signal();
  EXPECT_EQ(signal.lost, 4 * kMtu);
  EXPECT_FALSE(signal.timed_out);
}

TEST(SoftNicLoss, APacketTimesOutToTheNanosecond) {
  constexpr Duration kTimeout = Duration::from_us(50);
  SoftNicConfig config = experiment();
  config.loss.packet_timeout = kTimeout;
  Traffic traffic(config, 1);
  traffic.post();
  ASSERT_EQ(traffic.pair.transmit(0).size(), 1U);
  const Instant due = traffic.pair.now + kTimeout;
  for (const Duration early : {Duration::from_ns(1), Duration()}) {
    traffic.pair.now = due - early;
    traffic.pair.nic(0).on_time(traffic.pair.now);
    EXPECT_EQ(traffic.pair.transmit(0).size(), early == Duration() ? 1U : 0U);
  }
  EXPECT_EQ(traffic.signal().lost, kMtu);
}

TEST(SoftNicLoss, SilentPeerBreaksTheQueuePairUnderPacketTimeouts) {
  SoftNicConfig config = experiment();
  config.loss.packet_timeout = Duration::from_us(50);
  config.silence_limit = Duration::from_ms(5);
  Traffic traffic(config);
  traffic.pair.lose = [](size_t, Datagram&) { return true; };
  traffic.post();
  ASSERT_TRUE(traffic.pair.run_until_completed(0, 1, Duration::from_ms(6)));
  EXPECT_EQ(traffic.pair.completions[0][0].status, CompletionStatus::kRetryExceeded);
}

TEST(SoftNicPaths, GoodOnesAreUsedAgainAndTrimmedOnesAvoided) {
  SoftNicConfig config = experiment();
  config.paths = 8;
  config.path_policy = PathPolicy::kRecycle;
  config.ack.every_packet = true;
  Traffic traffic(config, 24);
  traffic.pair.limit(0, 0, {.rate = Rate::from_gbps(1000), .window = 8 * kMtu});
  traffic.post();
  auto packets = traffic.send();
  ASSERT_EQ(packets.size(), 8U);
  std::set<uint16_t> paths;
  for (const Datagram& packet : packets) paths.insert(packet.path);
  EXPECT_EQ(paths.size(), 8U) << "all of them once";
  packets[3].ecn = Ecn::kCongestion;
  packets[5].trim();
  std::vector<uint16_t> good;
  for (size_t i = 0; i < 8; ++i) {
    traffic.pair.deliver(1, packets[i]);
    traffic.deliver(0, traffic.pair.transmit(1));
    if (i != 3 && i != 5) good.push_back(packets[i].path);
  }
  const auto next = traffic.send();
  ASSERT_EQ(next.size(), 8U);
  for (size_t i = 0; i < good.size(); ++i) EXPECT_EQ(next[i].path, good[i]);
  for (const Datagram& packet : next) {
    EXPECT_NE(packet.path, packets[3].path);
    EXPECT_NE(packet.path, packets[5].path);
  }
}

// A packet I/O that takes one packet at a time still gets all kinds of packets, control first.
TEST(SoftNicTransmit, OneAtATimeControlFirst) {
  Traffic traffic(experiment());
  auto& nic = traffic.pair.nic(1);
  traffic.post();
  auto packets = traffic.send();
  packets[1].trim();
  traffic.deliver(1, {packets[0], packets[1], packets[2]});
  const auto& back = traffic.pair.memory(1, kMtu);
  const auto& there = traffic.pair.memory(0, kMtu);
  traffic.pair.post(1, traffic.ends[1], SoftNicPair::write(back, there, kMtu, 2));
  std::array<TxPacket, 1> one;
  std::vector<PacketKind> kinds;
  while (nic.poll_transmit(traffic.pair.now, one) == 1) {
    kinds.push_back(wire::classify(one[0].header));
  }
  EXPECT_EQ(kinds, (std::vector{PacketKind::kNak, PacketKind::kAck, PacketKind::kData}));
}

TEST(SoftNicConfigured, OverheadOnTheWireIsToldAndPaced) {
  SoftNicConfig config = experiment();
  config.wire_overhead_bytes = 1000;
  Traffic traffic(config, 100);
  EXPECT_EQ(traffic.pair.nic(0).caps().packet_overhead, 1044U);
  const Rate rate = Rate::from_gbps(1);
  traffic.pair.limit(0, 0, {.rate = rate, .window = Bytes{1} << 40});
  const Instant begin = traffic.pair.now;
  traffic.post();
  ASSERT_TRUE(traffic.pair.run_until_completed(0, 1));
  const Bytes on_wire = (100 - 5) * (kMtu + 1044);  // some go ahead of the pace
  EXPECT_GE(traffic.pair.now - begin, rate.time_for(on_wire));
}

TEST(SoftNicConfigured, CompletionsBoundWhatIsTaken) {
  SoftNicConfig config = experiment();
  config.completions = 2;
  Traffic traffic(config, 1);
  for (uint64_t i = 0; i < 3; ++i) traffic.post(i);
  traffic.deliver(1, traffic.send());
  EXPECT_EQ(traffic.pair.nic(1).counters().completions_full, 1U);
  ASSERT_TRUE(traffic.pair.run_until_completed(0, 3));
  EXPECT_EQ(traffic.pair.completions[1].size(), 3U);
}

}  // namespace
}  // namespace pacecar::test::traffic_test
