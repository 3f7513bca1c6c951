// A simulated fabric as its hosts see it: bytes, back-pressure, faults, repeatability.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "tests/support/fabric_world.h"

namespace pacecar::test::fabric_test {
namespace {

constexpr size_t kPayload = 236;
constexpr Bytes kDatagram = kPayload + FabricWorld::kHeader + FabricWorld::kTrailer;

FabricConfig with_bytes() {
  FabricConfig config = default_fabric();
  config.payload = PayloadMode::kBytes;
  return config;
}

std::vector<uint8_t> expected(const Letter& letter) {
  std::vector<uint8_t> bytes(FabricWorld::kHeader);
  std::memcpy(bytes.data(), &letter.number, sizeof(letter.number));
  const auto payload = FabricWorld::payload_of(letter);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  for (const int byte : {0xA, 0xB, 0xC, 0xD}) bytes.push_back(static_cast<uint8_t>(byte));
  return bytes;
}

SimFaults all_faults() {
  SimFaults faults;
  faults.loss = 0.05;
  faults.duplication = 0.04;
  faults.reordering = 0.1;
  faults.corruption = 0.03;
  return faults;
}

TEST(Fabric, DeliversTheBytesInOrder) {
  FabricWorld world(star(2), with_bytes());
  world.keep_bytes();
  world.send_many(0, {.to = 1, .payload = kPayload, .path = 5}, 5000);
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), 5000U);
  for (uint32_t i = 0; i < 5000; ++i) {
    const Arrival& arrival = world.arrivals()[i];
    ASSERT_EQ(arrival.bytes, expected({.number = i, .payload = kPayload}));
    ASSERT_EQ(arrival.elided, 0U);
    ASSERT_EQ(arrival.source.ip, world.fabric().port(0).local_address().ip);
    ASSERT_EQ(arrival.source.port, world.fabric().port(0).local_address().port + 5);
  }
}

TEST(Fabric, PayloadIsCarriedAsALengthIfConfigured) {
  FabricWorld world(star(2), default_fabric());
  world.keep_bytes();
  world.send(0, {.to = 1, .number = 9, .payload = kPayload});
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), 1U);
  EXPECT_EQ(world.arrivals()[0].elided, kPayload);
  EXPECT_EQ(world.arrivals()[0].bytes, expected({.number = 9}));
}

TEST(Fabric, ControlIsAlwaysCarriedAsBytes) {
  FabricWorld world(star(2), default_fabric());
  world.keep_bytes();
  const Letter letter{.to = 1, .number = 9, .payload = 64, .traffic_class = TrafficClass::kControl};
  world.send(0, letter);
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), 1U);
  EXPECT_EQ(world.arrivals()[0].elided, 0U);
  EXPECT_EQ(world.arrivals()[0].bytes, expected(letter));
}

TEST(Fabric, LossAndDuplicationKeepTheirProbability) {
  constexpr double kCount = 40'000;
  SimFaults faults;
  faults.loss = 0.1;
  faults.duplication = 0.02;
  FabricWorld world(star(2), with_bytes(), 7);
  world.fabric().set_faults(faults);
  world.send_many(0, {.to = 1, .payload = kPayload}, static_cast<uint32_t>(kCount));
  world.run_dry();
  const FabricCounters counters = world.fabric().counters();
  const auto lost = static_cast<double>(counters.dropped_for(FabricDrop::kLoss));
  // Five standard deviations of the binomial distribution.
  EXPECT_NEAR(lost, kCount * 0.1, 5 * std::sqrt(kCount * 0.1 * 0.9));
  const double reached = kCount - lost;
  EXPECT_NEAR(static_cast<double>(counters.duplicated), reached * 0.02,
              5 * std::sqrt(reached * 0.02 * 0.98));
  EXPECT_EQ(counters.delivered, world.arrivals().size());
  EXPECT_TRUE(counters.conserved());
}

TEST(Fabric, WordLossesAffectOnlyControlPacketsWithPayload) {
  SimFaults faults;
  faults.word_losses = {{.probability = 1, .port = 0}};
  FabricWorld world(star(3), default_fabric());
  world.fabric().set_faults(faults);
  const Letter word{.to = 2, .number = 1, .payload = 8, .traffic_class = TrafficClass::kControl};
  const Letter answer{.to = 2, .number = 2, .traffic_class = TrafficClass::kControl};
  const Letter data{.to = 2, .number = 3, .payload = kPayload};
  for (const Letter& letter : {word, answer, data}) world.send(0, letter);
  world.send(1, word);
  world.run_dry();
  EXPECT_EQ(world.fabric().counters().dropped_for(FabricDrop::kLoss), 1U);
  EXPECT_EQ(world.arrivals().size(), 3U);
}

TEST(Fabric, CountsThePayloadThatArrives) {
  FabricWorld world(star(3), default_fabric());
  world.fabric().port(2).count_arrivals(0);
  world.send_many(0, {.to = 2, .payload = kPayload}, 5);
  world.send(0, {.to = 2, .payload = 64, .traffic_class = TrafficClass::kControl});
  world.send_many(1, {.to = 2, .payload = kPayload}, 7);
  world.run_dry();
  EXPECT_EQ(world.fabric().port(2).arrived_bytes(0), 5 * kPayload);
  EXPECT_EQ(world.fabric().port(2).arrived_bytes(1),
            0U);  // count_arrivals was not called for this pair
}

TEST(Fabric, CorruptionFlipsOneBitAndIsCounted) {
  SimFaults faults;
  faults.corruption = 0.2;
  FabricWorld world(star(2), with_bytes());
  world.keep_bytes();
  world.fabric().set_faults(faults);
  world.send_many(0, {.to = 1, .payload = kPayload}, 2000);
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), 2000U);
  size_t changed = 0;
  for (uint32_t i = 0; i < 2000; ++i) {
    const auto good = expected({.number = i, .payload = kPayload});
    const auto& bytes = world.arrivals()[i].bytes;
    int bits = 0;
    for (size_t b = 0; b < good.size(); ++b) {
      bits += std::popcount(static_cast<uint8_t>(good[b] ^ bytes[b]));
    }
    ASSERT_LE(bits, 1);
    changed += bits;
  }
  EXPECT_EQ(changed, world.fabric().counters().corrupted);
  EXPECT_NEAR(static_cast<double>(changed), 400, 5 * std::sqrt(2000 * 0.2 * 0.8));
}

TEST(Fabric, ReorderingMakesPacketsLateNotLost) {
  SimFaults faults;
  faults.reordering = 0.1;
  FabricWorld world(star(2), with_bytes());
  world.fabric().set_faults(faults);
  world.send_many(0, {.to = 1, .payload = kPayload}, 2000);
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), 2000U);
  const auto earlier = [](const Arrival& a, const Arrival& b) { return a.number < b.number; };
  EXPECT_FALSE(std::is_sorted(world.arrivals().begin(), world.arrivals().end(), earlier));
}

uint64_t hash_of_run(uint64_t seed) {
  FabricWorld world(star(2), with_bytes(), seed);
  world.fabric().set_faults(all_faults());
  world.send_many(0, {.to = 1, .payload = kPayload}, 1000);
  world.run_dry();
  return world.fabric().trace_hash();
}

TEST(Fabric, SameSeedGivesTheSameTrace) {
  EXPECT_EQ(hash_of_run(42), hash_of_run(42));
  EXPECT_NE(hash_of_run(42), hash_of_run(43));
}

TEST(Fabric, TraceHashCoversHeaderBytes) {
  FabricWorld a(star(2), default_fabric());
  FabricWorld b(star(2), default_fabric());
  a.send(0, {.to = 1, .number = 5});
  b.send(0, {.to = 1, .number = 6});
  EXPECT_NE(a.fabric().trace_hash(), b.fabric().trace_hash());
}

TEST(Fabric, PartitionIsolatesTheIslandForItsTime) {
  FabricWorld world(star(4), default_fabric());
  SimFaults faults;
  faults.partitions.push_back(
      {.window = {.from = Instant(), .until = Instant::from_ns(1'000'000)}, .island = {0, 1}});
  world.fabric().set_faults(faults);
  world.send(0, {.to = 2, .number = 100});  // across
  world.send(3, {.to = 1, .number = 101});  // across, the other way
  world.send(0, {.to = 1, .number = 102});  // inside the island
  world.send(3, {.to = 2, .number = 103});  // inside the rest
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), 2U);
  EXPECT_EQ(world.fabric().counters().dropped_for(FabricDrop::kPartition), 2U);

  world.loop().run_until(Instant::from_ns(1'000'000));
  world.send(0, {.to = 2, .number = 104});
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), 3U);
  EXPECT_EQ(world.arrivals().back().number, 104U);
}

TEST(Fabric, AFrozenHostNeitherSendsNorReceives) {
  FabricWorld world(star(2), default_fabric());
  const Instant end = Instant::from_ns(500'000);
  SimFaults faults;
  faults.stalls.push_back({.window = {.from = Instant(), .until = end}, .port = 1});
  world.fabric().set_faults(faults);
  world.send(0, {.to = 1, .number = 1});
  EXPECT_FALSE(world.try_send(1, {.to = 0, .number = 2}));
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), 1U);
  EXPECT_EQ(world.arrivals()[0].time, end);
  EXPECT_GT(world.arrivals()[0].waited, Duration::from_us(490));
  EXPECT_TRUE(world.try_send(1, {.to = 0, .number = 3}));
}

TEST(Fabric, AHostThawsWhenTheFaultsEnd) {
  FabricWorld world(star(2), default_fabric());
  SimFaults faults;
  faults.stalls.push_back({.window = {}, .port = 1});  // for ever
  world.fabric().set_faults(faults);
  world.send(0, {.to = 1, .number = 1});
  world.run_dry();
  EXPECT_TRUE(world.arrivals().empty());
  world.fabric().set_faults({});
  EXPECT_EQ(world.arrivals().size(), 1U);
}

TEST(Fabric, FullNicRefusesPacketsUntilThereIsRoom) {
  FabricConfig config = default_fabric();
  config.hosts.data_queue_bytes = config.hosts.datagram_bytes + config.hosts.overhead_bytes;
  FabricWorld world(star(2, {.delay = Duration::from_ms(1)}), config);
  uint32_t accepted = 0;
  while (world.try_send(0, {.to = 1, .number = accepted, .payload = kPayload})) ++accepted;
  EXPECT_EQ(accepted, config.hosts.data_queue_bytes / (kDatagram + config.hosts.overhead_bytes));
  EXPECT_EQ(world.fabric().port(0).blocked_sends(), 1U);
  ASSERT_TRUE(world.loop().run_one());
  EXPECT_LT(world.loop().now(), Instant() + Duration::from_ms(1));
  EXPECT_TRUE(world.try_send(0, {.to = 1, .number = accepted, .payload = kPayload}));
}

TEST(Fabric, ANicWithoutAQueueTakesOnePacketAtATime) {
  FabricConfig config = default_fabric();
  config.hosts.data_queue_bytes = 0;
  FabricWorld world(star(2), config);
  EXPECT_TRUE(world.try_send(0, {.to = 1, .number = 0, .payload = kPayload}));
  EXPECT_FALSE(world.try_send(0, {.to = 1, .number = 1, .payload = kPayload}));
  world.run_dry();
  EXPECT_TRUE(world.try_send(0, {.to = 1, .number = 1, .payload = kPayload}));
}

TEST(Fabric, ControlHasAQueueOfItsOwnAtTheNic) {
  FabricWorld world(star(2), default_fabric());
  world.send_many(0, {.to = 1, .payload = 4000}, 100);
  EXPECT_GT(world.unsent(0), 0U);
  EXPECT_FALSE(world.try_send(0, {.to = 1, .payload = 4000}));
  EXPECT_TRUE(world.try_send(0, {.to = 1, .traffic_class = TrafficClass::kControl}));
}

TEST(Fabric, FullPacketStoreRefusesPacketsUntilThereIsRoom) {
  FabricConfig config = default_fabric();
  config.packets = 3;
  FabricWorld world(star(3), config);
  world.send_many(0, {.to = 1}, 20);
  world.send_many(2, {.to = 1, .number = 20}, 20);
  EXPECT_EQ(world.unsent(0) + world.unsent(2), 37U);
  world.run_dry();
  EXPECT_EQ(world.arrivals().size(), 40U);
}

TEST(Fabric, InboxDropsBeyondItsBound) {
  FabricConfig config = default_fabric();
  config.hosts.datagram_bytes = kDatagram;
  config.hosts.inbox_bytes = 4 * kDatagram;
  FabricWorld world(star(2), config);
  world.stop_reading();
  world.send_many(0, {.to = 1, .payload = kPayload}, 10);
  world.run_dry();
  EXPECT_EQ(world.fabric().counters().dropped_for(FabricDrop::kInboxFull), 6U);
  EXPECT_EQ(world.fabric().counters().in_flight, 4U);
  world.read(1);
  EXPECT_EQ(world.arrivals().size(), 4U);
  EXPECT_TRUE(world.fabric().counters().conserved());
}

TEST(Fabric, PacketToAnUnknownAddressIsDropped) {
  FabricWorld world(star(2), default_fabric());
  Address nobody = world.fabric().port(1).local_address();
  nobody.ip[15] = 9;
  const TxPacket packet{.header = {}, .payload = {}, .trailer = {}, .destination = &nobody};
  EXPECT_EQ(world.fabric().port(0).send({&packet, 1}, Instant()), 1U);
  world.run_dry();
  EXPECT_EQ(world.fabric().counters().dropped_for(FabricDrop::kNoRoute), 1U);
}

TEST(Fabric, OversizedDatagramFailsAlone) {
  FabricConfig config = with_bytes();
  config.hosts.datagram_bytes = kDatagram;
  FabricWorld world(star(2), config);
  const std::vector<uint8_t> bytes(kDatagram + 1);
  const TxPacket packet{.header = {},
                        .payload = bytes,
                        .trailer = {},
                        .destination = &world.fabric().port(1).local_address()};
  EXPECT_EQ(world.fabric().port(0).send({&packet, 1}, Instant()), 1U);
  world.send(0, {.to = 1, .payload = kPayload});
  world.run_dry();
  EXPECT_EQ(world.arrivals().size(), 1U);
}

// An invalid configuration, and the name that its error must contain.
struct InvalidConfig {
  const char* name;
  void (*change)(FabricConfig&);
};

TEST(Fabric, InvalidConfigurationIsRefused) {
  const std::vector<InvalidConfig> cases = {
      {"switches.queue_bytes", [](FabricConfig& c) { c.switches.queue_bytes = 0; }},
      {"switches.queue_bytes", [](FabricConfig& c) { c.switches.queue_bytes = 100; }},
      {"switches.buffer_bytes", [](FabricConfig& c) { c.switches.pfc.enabled = true; }},
      {"switches.pfc.alpha",
       [](FabricConfig& c) {
         c.switches = {.buffer_bytes = 1 << 20, .pfc = {.enabled = true, .alpha = 0}};
       }},
      {"switches.trimming",
       [](FabricConfig& c) {
         c.switches.buffer_bytes = 1 << 20;
         c.switches.pfc.enabled = true;
       }},
      {"the largest packet",
       [](FabricConfig& c) {
         c.switches.trimming = true;
         c.switches.trimmed_bytes = 1 << 20;
       }},
      {"switches.trimmed_bytes",
       [](FabricConfig& c) {
         c.switches.trimming = true;
         c.switches.trimmed_bytes = 0;
       }},
      {"switches.ecn.max_probability",
       [](FabricConfig& c) { c.switches.ecn.max_probability = 1.5; }},
      {"switches.ecn.high",
       [](FabricConfig& c) {
         c.switches.ecn = {.kind = EcnConfig::Kind::kRed, .low = 2, .high = 1};
       }},
      {"hosts.datagram_bytes", [](FabricConfig& c) { c.hosts.datagram_bytes = 1 << 20; }},
      {"hosts.overhead_bytes", [](FabricConfig& c) { c.hosts.overhead_bytes = 1 << 20; }},
      {"hosts.control_queue_bytes", [](FabricConfig& c) { c.hosts.control_queue_bytes = 1000; }},
      {"hosts.inbox_bytes", [](FabricConfig& c) { c.hosts.inbox_bytes = 1000; }},
      {"hosts.paths", [](FabricConfig& c) { c.hosts.paths = 0; }},
      {"header_bytes", [](FabricConfig& c) { c.header_bytes = 0; }},
      {"packets", [](FabricConfig& c) { c.packets = 0; }},
      {"failover", [](FabricConfig& c) { c.failover = Duration::from_ns(-1); }},
  };
  for (const InvalidConfig& invalid : cases) {
    FabricConfig config = default_fabric();
    invalid.change(config);
    EventLoop loop;
    const auto fabric = Fabric::create(loop, star(2), config, 1);
    ASSERT_FALSE(fabric) << invalid.name;
    EXPECT_EQ(fabric.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(fabric.error().message.find(invalid.name), std::string::npos)
        << fabric.error().message;
  }
}

TEST(Fabric, CablesWithoutRateOrWithNegativeDelayAreRefused) {
  for (const bool rate : {true, false}) {
    Topology topology = star(3);
    if (rate) {
      topology.cables[2].rate = Rate();
    } else {
      topology.cables[2].delay = Duration::from_ns(-5);
    }
    EventLoop loop;
    const auto fabric = Fabric::create(loop, topology, default_fabric(), 1);
    ASSERT_FALSE(fabric);
    EXPECT_NE(fabric.error().message.find("cable 2"), std::string::npos) << fabric.error().message;
  }
}

TEST(Fabric, DisconnectedHostsAreRefused) {
  Topology topology = star(3);
  topology.cables.pop_back();
  EventLoop loop;
  EXPECT_FALSE(Fabric::create(loop, topology, default_fabric(), 1));
}

}  // namespace
}  // namespace pacecar::test::fabric_test
