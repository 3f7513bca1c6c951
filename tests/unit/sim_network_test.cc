#include "transport/sim/sim_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace pacecar {
namespace {

constexpr size_t kPayload = 256;

struct Received {
  uint32_t number = 0;
  std::vector<uint8_t> bytes;
  Instant time;
  Ecn ecn = Ecn::kNotCapable;
  Address source;
};

// Sends numbered packets with a payload that their number determines.
class Traffic {
 public:
  explicit Traffic(const SimConfig& config, uint64_t seed = 1) : network_(config, seed) {}

  SimNetwork& network() { return network_; }

  // False when the port is full or stalled.
  bool send(size_t from, size_t to, uint32_t number) {
    const std::vector<uint8_t> bytes = expected(number);
    const std::span<const uint8_t> all(bytes);
    const TxPacket packet{.header = all.first(16),
                          .payload = all.subspan(16, kPayload - 20),
                          .trailer = all.last(4),
                          .destination = &network_.address(to)};
    return network_.port(from).send(std::span(&packet, 1), network_.now()) == 1;
  }

  // Sends when there is room, and lets time pass otherwise.
  void send_all(size_t from, size_t to, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      while (!send(from, to, i)) step();
    }
  }

  void step() {
    network_.advance_to(network_.next_event());
    read_all();
  }
  void run_dry() {
    while (network_.next_event() != Instant::never()) step();
  }

  void read_all() {
    for (size_t port = 0; port < network_.config().ports; ++port) {
      std::array<RxPacket, 16> packets;
      while (const size_t count = network_.port(port).receive(packets, network_.now())) {
        for (size_t i = 0; i < count; ++i) keep(packets[i]);
      }
    }
  }

  static std::vector<uint8_t> expected(uint32_t number) {
    std::vector<uint8_t> bytes(kPayload);
    for (size_t i = 0; i < kPayload; ++i) bytes[i] = static_cast<uint8_t>(number * 31 + i);
    std::memcpy(bytes.data(), &number, sizeof(number));
    return bytes;
  }

  std::vector<Received> received;

 private:
  void keep(const RxPacket& packet) {
    Received entry{.number = 0,
                   .bytes = {packet.bytes.begin(), packet.bytes.end()},
                   .time = network_.now(),
                   .ecn = packet.ecn,
                   .source = *packet.source};
    std::memcpy(&entry.number, packet.bytes.data(), sizeof(entry.number));
    received.push_back(std::move(entry));
  }

  SimNetwork network_;
};

SimFaults all_faults() {
  SimFaults faults;
  faults.loss = 0.05;
  faults.duplication = 0.04;
  faults.reordering = 0.1;
  faults.corruption = 0.03;
  return faults;
}

TEST(SimNetwork, DeliversTheBytesInOrderWithoutFaults) {
  Traffic traffic(SimConfig{});
  traffic.send_all(0, 1, 5000);
  traffic.run_dry();
  ASSERT_EQ(traffic.received.size(), 5000U);
  for (uint32_t i = 0; i < 5000; ++i) {
    ASSERT_EQ(traffic.received[i].bytes, Traffic::expected(i));
    ASSERT_EQ(traffic.received[i].source, traffic.network().address(0));
  }
}

TEST(SimNetwork, ArrivalTimeIsTwoLinksLong) {
  SimConfig config;
  config.up = {.rate = Rate::from_gbps(8), .delay = Duration::from_ns(100)};
  config.down = {.rate = Rate::from_gbps(4), .delay = Duration::from_ns(1000)};
  Traffic traffic(config);
  ASSERT_TRUE(traffic.send(0, 1, 0));
  ASSERT_TRUE(traffic.send(0, 1, 1));
  traffic.run_dry();
  ASSERT_EQ(traffic.received.size(), 2U);
  const int64_t first = kPayload + 100 + 2 * kPayload + 1000;
  EXPECT_EQ(traffic.received[0].time.ns(), first);
  EXPECT_EQ(traffic.received[1].time.ns(), first + 2 * static_cast<int64_t>(kPayload));
}

TEST(SimNetwork, ConservesPacketsAtEveryStep) {
  SimConfig config;
  config.down.rate = Rate::from_gbps(60);
  config.down.queue_bytes = 32 << 10;
  config.ports = 4;
  Traffic traffic(config);
  traffic.network().set_faults(all_faults());
  for (uint32_t i = 0; i < 3000; ++i) {
    for (const size_t from : {0U, 1U, 2U}) {
      while (!traffic.send(from, from + 1, i)) traffic.step();
    }
    ASSERT_TRUE(traffic.network().counters().conserved());
  }
  traffic.run_dry();
  const SimCounters counters = traffic.network().counters();
  EXPECT_TRUE(counters.conserved());
  EXPECT_EQ(counters.in_flight, 0U);
  EXPECT_EQ(counters.delivered, traffic.received.size());
  EXPECT_EQ(counters.sent, 9000U);
  EXPECT_GT(counters.all_dropped(), 0U);
  EXPECT_GT(counters.duplicated, 0U);
}

TEST(SimNetwork, LossAndDuplicationKeepTheirProbability) {
  constexpr double kCount = 40'000;
  SimFaults faults;
  faults.loss = 0.1;
  faults.duplication = 0.02;
  Traffic traffic(SimConfig{}, 7);
  traffic.network().set_faults(faults);
  traffic.send_all(0, 1, static_cast<uint32_t>(kCount));
  traffic.run_dry();
  const SimCounters counters = traffic.network().counters();
  const auto lost = static_cast<double>(counters.dropped_for(SimDrop::kLoss));
  const auto doubled = static_cast<double>(counters.duplicated);
  // Five standard deviations of the binomial distribution.
  EXPECT_NEAR(lost, kCount * 0.1, 5 * std::sqrt(kCount * 0.1 * 0.9));
  const double reached = kCount - lost;
  EXPECT_NEAR(doubled, reached * 0.02, 5 * std::sqrt(reached * 0.02 * 0.98));
}

TEST(SimNetwork, CorruptionFlipsOneBitAndIsCounted) {
  SimFaults faults;
  faults.corruption = 0.2;
  Traffic traffic(SimConfig{});
  traffic.network().set_faults(faults);
  traffic.send_all(0, 1, 2000);
  traffic.run_dry();
  ASSERT_EQ(traffic.received.size(), 2000U);
  size_t changed = 0;
  for (uint32_t i = 0; i < 2000; ++i) {
    const auto good = Traffic::expected(i);
    int bits = 0;
    for (size_t b = 0; b < kPayload; ++b) {
      bits += std::popcount(static_cast<uint8_t>(good[b] ^ traffic.received[i].bytes[b]));
    }
    ASSERT_LE(bits, 1);
    changed += bits;
  }
  EXPECT_EQ(changed, traffic.network().counters().corrupted);
  EXPECT_NEAR(static_cast<double>(changed), 400, 5 * std::sqrt(2000 * 0.2 * 0.8));
}

TEST(SimNetwork, ReorderingMakesPacketsLateNotLost) {
  SimFaults faults;
  faults.reordering = 0.1;
  Traffic traffic(SimConfig{});
  traffic.network().set_faults(faults);
  traffic.send_all(0, 1, 2000);
  traffic.run_dry();
  ASSERT_EQ(traffic.received.size(), 2000U);
  const auto earlier = [](const Received& a, const Received& b) { return a.number < b.number; };
  EXPECT_FALSE(std::is_sorted(traffic.received.begin(), traffic.received.end(), earlier));
}

uint64_t hash_of_run(uint64_t seed) {
  Traffic traffic(SimConfig{}, seed);
  traffic.network().set_faults(all_faults());
  traffic.send_all(0, 1, 1000);
  traffic.run_dry();
  return traffic.network().trace_hash();
}

TEST(SimNetwork, SameSeedSameTrace) {
  EXPECT_EQ(hash_of_run(42), hash_of_run(42));
  EXPECT_NE(hash_of_run(42), hash_of_run(43));
}

TEST(SimNetwork, TraceSeesAByteOfTheHeader) {
  Traffic a(SimConfig{});
  Traffic b(SimConfig{});
  a.send(0, 1, 5);
  b.send(0, 1, 6);
  EXPECT_NE(a.network().trace_hash(), b.network().trace_hash());
}

TEST(SimNetwork, PartitionCutsTheIslandOffForItsTime) {
  SimConfig config;
  config.ports = 4;
  Traffic traffic(config);
  SimFaults faults;
  faults.partitions.push_back(
      {.window = {.from = Instant(), .until = Instant::from_ns(1'000'000)}, .island = {0, 1}});
  traffic.network().set_faults(faults);
  ASSERT_TRUE(traffic.send(0, 2, 100));  // across
  ASSERT_TRUE(traffic.send(3, 1, 101));  // across, the other way
  ASSERT_TRUE(traffic.send(0, 1, 102));  // inside the island
  ASSERT_TRUE(traffic.send(3, 2, 103));  // inside the rest
  traffic.run_dry();
  ASSERT_EQ(traffic.received.size(), 2U);
  EXPECT_EQ(traffic.network().counters().dropped_for(SimDrop::kPartition), 2U);

  traffic.network().advance_to(Instant::from_ns(1'000'000));
  ASSERT_TRUE(traffic.send(0, 2, 104));
  traffic.run_dry();
  ASSERT_EQ(traffic.received.size(), 3U);
  EXPECT_EQ(traffic.received.back().number, 104U);
}

TEST(SimNetwork, StalledPortNeitherSendsNorReceives) {
  Traffic traffic(SimConfig{});
  const Instant end = Instant::from_ns(500'000);
  SimFaults faults;
  faults.stalls.push_back({.window = {.from = Instant(), .until = end}, .port = 1});
  traffic.network().set_faults(faults);
  ASSERT_TRUE(traffic.send(0, 1, 1));
  EXPECT_FALSE(traffic.send(1, 0, 2));
  traffic.run_dry();
  ASSERT_EQ(traffic.received.size(), 1U);
  EXPECT_EQ(traffic.received[0].time, end);
  EXPECT_TRUE(traffic.send(1, 0, 3));
}

TEST(SimNetwork, SwitchQueueDropsBeyondItsBound) {
  SimConfig config;
  config.ports = 3;
  config.down.rate = Rate::from_gbps(10);
  config.down.queue_bytes = config.datagram_bytes * 2;
  Traffic traffic(config);
  for (uint32_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(traffic.send(0, 2, i));
    ASSERT_TRUE(traffic.send(1, 2, i));
  }
  traffic.run_dry();
  const SimCounters counters = traffic.network().counters();
  EXPECT_GT(counters.dropped_for(SimDrop::kQueueFull), 0U);
  EXPECT_GE(counters.delivered, config.down.queue_bytes / kPayload);
  EXPECT_EQ(counters.dropped_for(SimDrop::kQueueFull) + counters.delivered, 400U);
}

TEST(SimNetwork, FullPortPushesBackAndSaysWhenToTryAgain) {
  SimConfig config;
  config.up.queue_bytes = config.datagram_bytes;
  config.up.delay = Duration::from_ms(1);
  Traffic traffic(config);
  uint32_t accepted = 0;
  while (traffic.send(0, 1, accepted)) ++accepted;
  EXPECT_EQ(accepted, config.datagram_bytes / kPayload);
  EXPECT_EQ(traffic.network().port(0).counters().send_blocked, 1U);
  traffic.step();
  EXPECT_LT(traffic.network().now(), Instant() + config.up.delay);
  EXPECT_TRUE(traffic.send(0, 1, accepted));
}

TEST(SimNetwork, FullPoolPushesBack) {
  SimConfig config;
  config.packets = 3;
  Traffic traffic(config);
  for (uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(traffic.send(0, 1, i));
  EXPECT_FALSE(traffic.send(0, 1, 3));
  traffic.run_dry();
  EXPECT_TRUE(traffic.send(0, 1, 3));
  traffic.run_dry();
  EXPECT_EQ(traffic.received.size(), 4U);
}

TEST(SimNetwork, InboxDropsBeyondItsBound) {
  SimConfig config;
  config.inbox_bytes = 4 * kPayload;
  Traffic traffic(config);
  for (uint32_t i = 0; i < 10; ++i) ASSERT_TRUE(traffic.send(0, 1, i));
  traffic.network().advance_to(Instant() + Duration::from_ms(1));
  EXPECT_EQ(traffic.network().counters().dropped_for(SimDrop::kInboxFull), 6U);
  traffic.read_all();
  EXPECT_EQ(traffic.received.size(), 4U);
}

TEST(SimNetwork, MarksWhenTheSwitchQueueIsLong) {
  SimConfig config;
  config.down.rate = Rate::from_gbps(10);
  config.down.ecn_threshold_bytes = 8 * kPayload;
  Traffic traffic(config);
  EXPECT_TRUE(traffic.network().port(1).caps().sees_ecn);
  for (uint32_t i = 0; i < 100; ++i) ASSERT_TRUE(traffic.send(0, 1, i));
  traffic.run_dry();
  ASSERT_EQ(traffic.received.size(), 100U);
  EXPECT_EQ(traffic.received.front().ecn, Ecn::kCapable0);
  EXPECT_EQ(traffic.received.back().ecn, Ecn::kCongestion);
  const auto marked = std::count_if(traffic.received.begin(), traffic.received.end(),
                                    [](const Received& r) { return r.ecn == Ecn::kCongestion; });
  EXPECT_EQ(static_cast<uint64_t>(marked), traffic.network().counters().marked);
}

TEST(SimNetwork, UnknownAddressGoesNowhere) {
  Traffic traffic(SimConfig{});
  Address nobody = traffic.network().address(1);
  nobody.ip[15] = 9;
  const TxPacket packet{.header = {}, .payload = {}, .trailer = {}, .destination = &nobody};
  EXPECT_EQ(traffic.network().port(0).send(std::span(&packet, 1), Instant()), 1U);
  traffic.run_dry();
  EXPECT_EQ(traffic.network().counters().dropped_for(SimDrop::kNoRoute), 1U);
}

TEST(SimNetwork, OversizedDatagramIsAnErrorOfThatPacketOnly) {
  SimConfig config;
  config.datagram_bytes = kPayload;
  Traffic traffic(config);
  const std::vector<uint8_t> bytes(kPayload + 1);
  const TxPacket packet{
      .header = {}, .payload = bytes, .trailer = {}, .destination = &traffic.network().address(1)};
  EXPECT_EQ(traffic.network().port(0).send(std::span(&packet, 1), Instant()), 1U);
  EXPECT_EQ(traffic.network().port(0).counters().send_errors, 1U);
  EXPECT_TRUE(traffic.send(0, 1, 0));
  traffic.run_dry();
  EXPECT_EQ(traffic.received.size(), 1U);
}

}  // namespace
}  // namespace pacecar
