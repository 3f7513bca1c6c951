// Queues of simulated switches: waiting times against theory, marks, trimming, bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/fabric_world.h"
#include "transport/base/prng.h"
#include "transport/sim/fabric_config.h"

namespace pacecar::test::fabric_queue_test {
namespace {

constexpr Bytes kFullBytes = 4150;
constexpr size_t kFull = kFullBytes - 20 - FabricWorld::kHeader - FabricWorld::kTrailer;

FabricConfig full_packets() {
  FabricConfig config = default_fabric();
  config.hosts.overhead_bytes = 20;
  return config;
}

// The cables of the senders are too fast to disturb the arrival process. The last host has 40 Gb/s,
// where a full packet takes 830 ns.
constexpr uint32_t kSenders = 16;
constexpr uint32_t kSink = kSenders;
constexpr NodeId kSwitch = kSenders + 1;

Topology funnel() {
  Topology topology{.name = "funnel", .hosts = kSenders + 1, .switches = 1};
  for (uint32_t host = 0; host <= kSenders; ++host) {
    topology.cables.push_back({.a = kSwitch,
                               .b = host,
                               .rate = Rate::from_gbps(host == kSink ? 40 : 4000),
                               .delay = Duration::from_us(1)});
    topology.node_names.push_back("host " + std::to_string(host));
  }
  topology.node_names.push_back("switch");
  return topology;
}

struct Waiting {
  double mean_ns = 0;
  double mean_queue = 0;  // packets that an arrival sees, the one in service included
};

Waiting poisson_stream(double load, uint32_t packets) {
  FabricConfig config = full_packets();
  config.switches.queue_bytes = 1 << 30;
  FabricWorld world(funnel(), config);
  Prng random(11);
  constexpr double kService = 830;
  constexpr double kUnloaded = 2000 + 9 + 830;  // 8.3 ns at the sender, rounded up
  std::vector<int64_t> sent(packets);
  double time = 0;
  double waited = 0;
  double seen = 0;
  const LinkId bottleneck = world.link(kSwitch, kSink);
  const auto take = [&] {
    for (const Arrival& arrival : world.arrivals()) {
      waited += static_cast<double>(arrival.time.ns() - sent[arrival.number]) - kUnloaded;
    }
    world.clear_arrivals();
  };
  for (uint32_t i = 0; i < packets; ++i) {
    const double uniform = static_cast<double>((random.next_u64() >> 11) + 1) * 0x1p-53;
    time -= std::log(uniform) * kService / load;
    world.loop().run_until(Instant::from_ns(std::llround(time)));
    sent[i] = world.loop().now().ns();
    seen += static_cast<double>(world.fabric().link_stats(bottleneck).queue_bytes) / kFullBytes;
    world.send(static_cast<uint32_t>(random.below(kSenders)),
               {.to = kSink, .number = i, .payload = kFull});
    if (i % 1024 == 0) take();
  }
  world.run_dry();
  take();
  return {waited / packets, seen / packets};
}

class PoissonTest : public testing::TestWithParam<double> {};

TEST_P(PoissonTest, WaitingTimeIsThatOfAnMd1Queue) {
  const double load = GetParam();
  const Waiting waiting = poisson_stream(load, load > 0.75 ? 3'000'000 : 1'000'000);
  const double wait = 830 * load / (2 * (1 - load));  // Pollaczek and Khinchine
  EXPECT_NEAR(waiting.mean_ns, wait, 0.02 * wait);
  const double queue = load + load * load / (2 * (1 - load));
  EXPECT_NEAR(waiting.mean_queue, queue, 0.02 * queue);
}

INSTANTIATE_TEST_SUITE_P(Loads, PoissonTest, testing::Values(0.3, 0.5, 0.7, 0.8));

TEST(EcnConfig, RedMarksWithTheProbabilityOfTheRamp) {
  const EcnConfig ecn{
      .kind = EcnConfig::Kind::kRed, .low = 100'000, .high = 400'000, .max_probability = 0.2};
  Prng random(5);
  constexpr double kDraws = 100'000;
  for (Bytes queue = 0; queue <= 500'000; queue += 25'000) {
    double expected = queue < 100'000 ? 0 : 0.2 * static_cast<double>(queue - 100'000) / 300'000;
    if (queue >= 400'000) expected = 1;
    int marks = 0;
    for (int i = 0; i < kDraws; ++i) marks += ecn.marks(queue, random) ? 1 : 0;
    const double deviation = std::sqrt(kDraws * expected * (1 - expected));
    EXPECT_NEAR(marks, kDraws * expected, 5 * deviation) << queue;
  }
}

size_t count_marked(const FabricWorld& world) {
  return static_cast<size_t>(
      std::count_if(world.arrivals().begin(), world.arrivals().end(),
                    [](const Arrival& a) { return a.ecn == Ecn::kCongestion; }));
}

constexpr uint32_t kBurst = 50;  // packets of each of two hosts into one

// Packets arrive in pairs every 83 ns and leave one by one.
void send_bursts(FabricWorld& world) {
  world.send_many(0, {.to = 2, .payload = kFull}, kBurst);
  world.send_many(1, {.to = 2, .number = kBurst, .payload = kFull}, kBurst);
  world.run_dry();
}

Topology three_hosts() { return star(3, {.rate = Rate::from_gbps(400)}); }

TEST(FabricQueue, StepMarksArrivalsAtALongQueue) {
  FabricConfig config = full_packets();
  config.switches.ecn = {.kind = EcnConfig::Kind::kStep, .low = 10 * kFullBytes};
  FabricWorld world(three_hosts(), config);
  send_bursts(world);
  // The k-th pair, from k = 0 on, finds k packets and makes the queue k + 1 and k + 2 long.
  EXPECT_EQ(count_marked(world), (kBurst - 9) + (kBurst - 8));
  EXPECT_EQ(world.fabric().counters().marked, count_marked(world));
  EXPECT_EQ(world.fabric().link_stats(world.link(3, 2)).marked, count_marked(world));
  EXPECT_EQ(world.fabric().link_stats(world.link(3, 2)).queue_max_bytes, (kBurst + 1) * kFullBytes);
}

TEST(FabricQueue, StepAtDequeueMarksDeparturesFromALongQueue) {
  FabricConfig config = full_packets();
  config.switches.ecn = {
      .kind = EcnConfig::Kind::kStep, .when = EcnConfig::When::kDequeue, .low = 10 * kFullBytes};
  FabricWorld world(three_hosts(), config);
  send_bursts(world);
  // The n-th departure leaves n packets behind while packets arrive, and 100 - n afterwards.
  EXPECT_EQ(count_marked(world), 2 * (kBurst - 9) - 1);
  EXPECT_EQ(world.arrivals()[8].ecn, Ecn::kCapable0);
  EXPECT_EQ(world.arrivals()[9].ecn, Ecn::kCongestion);
  EXPECT_EQ(world.arrivals()[89].ecn, Ecn::kCongestion);
  EXPECT_EQ(world.arrivals()[90].ecn, Ecn::kCapable0);
}

TEST(FabricQueue, HostLinksCanBeExcludedFromMarking) {
  FabricConfig config = full_packets();
  config.switches.ecn = {
      .kind = EcnConfig::Kind::kStep, .low = 10 * kFullBytes, .host_links = false};
  FabricWorld world(three_hosts(), config);
  send_bursts(world);
  EXPECT_EQ(count_marked(world), 0U);
}

TEST(FabricQueue, OnlyDataIsMarked) {
  FabricConfig config = full_packets();
  config.switches.ecn = {.kind = EcnConfig::Kind::kStep};
  FabricWorld world(three_hosts(), config);
  world.send(0, {.to = 2, .number = 1, .traffic_class = TrafficClass::kControl});
  world.send(1, {.to = 2, .number = 2});
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), 2U);
  for (const Arrival& arrival : world.arrivals()) {
    EXPECT_EQ(arrival.ecn, arrival.number == 1 ? Ecn::kNotCapable : Ecn::kCongestion);
  }
}

FabricConfig trimming(bool tail_at_random) {
  FabricConfig config = full_packets();
  config.switches.queue_bytes = 10 * kFullBytes;
  config.switches.trimming = true;
  config.switches.trim_tail_at_random = tail_at_random;
  return config;
}

TEST(FabricQueue, TrimmedHeadersArriveInsteadOfDrops) {
  FabricWorld world(three_hosts(), trimming(false));
  world.keep_bytes();
  send_bursts(world);
  ASSERT_EQ(world.arrivals().size(), 2 * kBurst);
  const FabricCounters counters = world.fabric().counters();
  EXPECT_EQ(counters.all_dropped(), 0U);
  EXPECT_EQ(counters.in_flight, 0U);
  uint64_t trimmed = 0;
  for (const Arrival& arrival : world.arrivals()) {
    EXPECT_EQ(arrival.elided, arrival.trimmed ? 0 : kFull);
    EXPECT_EQ(arrival.bytes.size(),
              FabricWorld::kHeader + (arrival.trimmed ? 0 : FabricWorld::kTrailer));
    trimmed += arrival.trimmed ? 1 : 0;
  }
  // The queue is full from pair 8 on; then one packet of each pair finds room, and headers take a
  // little time.
  EXPECT_EQ(trimmed, counters.trimmed);
  EXPECT_NEAR(static_cast<double>(trimmed), kBurst - 8, 2);
  EXPECT_EQ(world.fabric().link_stats(world.link(3, 2)).queue_max_bytes, 10 * kFullBytes);
  EXPECT_EQ(world.fabric().link_stats(world.link(3, 2)).trimmed, trimmed);
}

TEST(FabricQueue, TrimmedHeadersOvertakeData) {
  FabricWorld world(three_hosts(), trimming(false));
  send_bursts(world);
  const auto first = std::find_if(world.arrivals().begin(), world.arrivals().end(),
                                  [](const Arrival& arrival) { return arrival.trimmed; });
  ASSERT_NE(first, world.arrivals().end());
  // A packet of the ninth pair is trimmed; its header waits only for the packet in service.
  EXPECT_LE(first->time.ns(), 1083 + 83 * 9 + 83 + 2 + 1000);
}

TEST(FabricQueue, PacketThatReplacesTheLastOneIsMarkedToo) {
  FabricConfig config = trimming(true);
  config.switches.ecn = {.kind = EcnConfig::Kind::kStep, .low = 4 * kFullBytes};
  FabricWorld world(three_hosts(), config);
  send_bursts(world);
  // Once the queue has reached the threshold, it stays above until the bursts end.
  size_t unmarked = 0;
  for (const Arrival& arrival : world.arrivals()) {
    unmarked += !arrival.trimmed && arrival.ecn != Ecn::kCongestion ? 1 : 0;
  }
  EXPECT_LE(unmarked, 8U);
  EXPECT_GE(world.fabric().counters().trimmed, 30U);
}

TEST(FabricQueue, ShortPacketThatReplacesALongOneCountsItsOwnBytes) {
  FabricWorld world(three_hosts(), trimming(true));
  world.send_many(0, {.to = 2, .payload = kFull}, 500);
  world.send_many(1, {.to = 2, .number = 500, .payload = kFull / 2}, 500);
  world.run_dry();
  EXPECT_GT(world.fabric().counters().trimmed, 100U);
  EXPECT_EQ(world.fabric().link_stats(world.link(3, 2)).queue_bytes, 0U);
  EXPECT_EQ(world.fabric().switch_buffer(0), 0U);
}

// Host 1's packets find the queue full whenever host 0's do not: without the coin
// most trimmed packets are host 1's.
std::array<int, 2> trims_per_host(bool tail_at_random) {
  FabricWorld world(three_hosts(), trimming(tail_at_random));
  world.send_many(0, {.to = 2, .payload = kFull}, 2000);
  world.send_many(1, {.to = 2, .number = 2000, .payload = kFull}, 2000);
  world.run_dry();
  std::array<int, 2> trims{};
  for (const Arrival& arrival : world.arrivals()) {
    if (arrival.trimmed) ++trims[arrival.number < 2000 ? 0 : 1];
  }
  EXPECT_EQ(world.arrivals().size(), 4000U);
  return trims;
}

TEST(FabricQueue, FairCoinDividesTheTrims) {
  const auto arriving = trims_per_host(false);
  const auto fair = trims_per_host(true);
  EXPECT_GT(std::abs(arriving[0] - arriving[1]), 1500);
  EXPECT_LT(std::abs(fair[0] - fair[1]), 300);
  EXPECT_NEAR(fair[0] + fair[1], arriving[0] + arriving[1], 60);
}

TEST(FabricQueue, WithoutTrimmingAFullQueueDrops) {
  FabricConfig config = trimming(false);
  config.switches.trimming = false;
  FabricWorld world(three_hosts(), config);
  send_bursts(world);
  const FabricCounters counters = world.fabric().counters();
  EXPECT_EQ(counters.dropped_for(FabricDrop::kQueueFull), kBurst - 9);
  EXPECT_EQ(world.fabric().link_stats(world.link(3, 2)).dropped, kBurst - 9);
  EXPECT_TRUE(counters.conserved());
}

TEST(FabricQueue, TheControlQueueHasItsOwnBound) {
  FabricConfig config = full_packets();
  config.header_bytes = 1100;  // control is carried as bytes
  config.switches.control_queue_bytes = 5 * 1040;
  FabricWorld world(three_hosts(), config);
  for (const uint32_t from : {0U, 1U}) {
    world.send_many(from, {.to = 2, .payload = 1000, .traffic_class = TrafficClass::kControl}, 20);
  }
  world.run_dry();
  // The k-th pair makes k + 1 packets wait; from k = 5 on, one packet of each pair is dropped.
  EXPECT_EQ(world.fabric().counters().dropped_for(FabricDrop::kQueueFull), 20U - 5);
}

TEST(FabricQueue, PortsShareTheBuffer) {
  FabricConfig config = full_packets();
  config.switches.queue_bytes = 0;
  config.switches.buffer_bytes = 20 * kFullBytes;
  FabricWorld world(star(6, {.rate = Rate::from_gbps(400)}), config);
  for (const uint32_t from : {0U, 1U}) world.send_many(from, {.to = 4, .payload = kFull}, 100);
  for (const uint32_t from : {2U, 3U}) world.send_many(from, {.to = 5, .payload = kFull}, 100);
  world.run_dry();
  EXPECT_EQ(world.fabric().switch_buffer_max(), 20 * kFullBytes);
  EXPECT_EQ(world.fabric().switch_buffer(0), 0U);
  const Bytes queues = world.fabric().link_stats(world.link(6, 4)).queue_max_bytes +
                       world.fabric().link_stats(world.link(6, 5)).queue_max_bytes;
  EXPECT_LE(queues, 22 * kFullBytes);  // packets in service are not in the buffer
  EXPECT_GE(queues, 20 * kFullBytes);
  EXPECT_GT(world.fabric().counters().dropped_for(FabricDrop::kQueueFull), 0U);
}

}  // namespace
}  // namespace pacecar::test::fabric_queue_test
