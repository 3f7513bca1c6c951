// Times that can be computed by hand: serialisation, propagation, store and forward, priorities,
// and the telemetry of all these.
#include <gtest/gtest.h>

#include "tests/support/fabric_world.h"

namespace pacecar::test::fabric_timing_test {
namespace {

constexpr CableSpec kCable400{.rate = Rate::from_gbps(400), .delay = Duration::from_us(1)};

Topology leaf_spine() {
  return make_leaf_spine({.hosts = 8,
                          .hosts_per_leaf = 4,
                          .spines = 2,
                          .cable = kCable400,
                          .uplink = kCable400})
      .value();
}

// 4,150 bytes on the wire: 83 ns at 400 Gb/s.
FabricConfig full_packets() {
  FabricConfig config = default_fabric();
  config.hosts.overhead_bytes = 20;
  return config;
}
constexpr size_t kFull = 4150 - 20 - FabricWorld::kHeader - FabricWorld::kTrailer;

TEST(FabricTiming, OneFlowIsExactToTheNanosecond) {
  FabricWorld world(leaf_spine(), full_packets());
  constexpr uint32_t kPackets = 1000;
  world.send_many(0, {.to = 7, .payload = kFull}, kPackets);
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), kPackets);
  // Four cables; the last packet leaves the host after all others and is stored at three switches.
  for (uint32_t i = 0; i < kPackets; ++i) {
    ASSERT_EQ(world.arrivals()[i].number, i);
    ASSERT_EQ(world.arrivals()[i].time.ns(), 4 * 1000 + 83 * (i + 4)) << i;
    ASSERT_EQ(world.arrivals()[i].elided, kFull);
  }
}

TEST(FabricTiming, FractionsOfNanosecondsDoNotAddUp) {
  FabricWorld world(star(2, kCable400), full_packets());
  constexpr uint32_t kPackets = 20'000;
  world.send_many(0, {.to = 1, .payload = 24}, kPackets);  // 64 bytes: 1.28 ns
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), kPackets);
  const int64_t took = world.arrivals().back().time.ns() - 2000;
  EXPECT_GE(took, 1.28 * (kPackets + 1));
  EXPECT_LE(took, 1.28 * (kPackets + 1) + 3);
}

TEST(FabricTiming, LonePacketTakesPropagationAndSerialisation) {
  FabricWorld world(leaf_spine(), full_packets());
  world.send(1, {.to = 6, .payload = kFull});
  world.run_dry();
  world.send(6, {.to = 1, .payload = 40, .traffic_class = TrafficClass::kControl});
  world.run_dry();
  EXPECT_EQ(world.loop().now().ns(), 8000 + 4 * 83 + 4 * 2);  // 80 B: 1.6 ns
}

TEST(FabricTiming, PacketThatNeverWaitsTakesOneEventPerCable) {
  FabricWorld world(leaf_spine(), full_packets());
  world.send(0, {.to = 7, .payload = kFull});
  world.run_dry();
  EXPECT_EQ(world.loop().events(), 4U);
}

// Two hosts send to a third: packets of the second host wait for packets of the first.
TEST(FabricTiming, TelemetryMatchesHandComputedValues) {
  FabricConfig config = full_packets();
  config.switches.telemetry = true;
  FabricWorld world(leaf_spine(), config);
  world.send_many(0, {.to = 2, .payload = kFull}, 2);
  world.send_many(1, {.to = 2, .number = 10, .payload = kFull}, 2);
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), 4U);
  // At the leaf: both first packets at 1083, both second ones at 1166; each takes 83 ns to leave.
  for (uint32_t i = 0; i < 4; ++i) {
    const Arrival& arrival = world.arrivals()[i];
    ASSERT_EQ(arrival.telemetry.size(), 1U);
    const TelemetryHop& hop = arrival.telemetry[0];
    EXPECT_EQ(hop.time_ns, 1083 + 83 * (i + 1));
    EXPECT_EQ(hop.sent_bytes, 4150 * (i + 1));
    EXPECT_EQ(hop.rate_mbps, 400'000U);
    EXPECT_EQ(arrival.time.ns(), hop.time_ns + 1000);
  }
  // The first packet leaves the second behind; the two of 1166 arrive when the first has just left.
  const std::vector<Bytes> behind = {4150, 2 * 4150, 4150, 0};
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(world.arrivals()[i].telemetry[0].queue_bytes, behind[i]) << i;
  }
}

TEST(FabricTiming, EverySwitchOfThePathStampsDataOnly) {
  FabricConfig config = full_packets();
  config.switches.telemetry = true;
  FabricWorld world(leaf_spine(), config);
  world.send(0, {.to = 7, .number = 1, .payload = kFull});
  world.send(0, {.to = 7, .number = 2, .traffic_class = TrafficClass::kControl});
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), 2U);
  const Arrival& data = world.arrivals()[0].number == 1 ? world.arrivals()[0] : world.arrivals()[1];
  const Arrival& control =
      world.arrivals()[0].number == 2 ? world.arrivals()[0] : world.arrivals()[1];
  ASSERT_EQ(data.telemetry.size(), 3U);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(data.telemetry[i].time_ns, (i + 1) * 1083 + 83);
    EXPECT_EQ(data.telemetry[i].queue_bytes, 0U);
  }
  EXPECT_TRUE(control.telemetry.empty());
}

TEST(FabricTiming, ControlPrecedesWaitingDataButNotThePacketInService) {
  FabricConfig config = full_packets();
  FabricWorld world(star(3, kCable400), config);
  world.send_many(0, {.to = 2, .payload = kFull}, 10);
  world.send_many(1, {.to = 2, .number = 100, .payload = kFull}, 10);
  world.run_for(Duration::from_ns(1300));
  world.send(1, {.to = 2, .number = 50, .payload = 4, .traffic_class = TrafficClass::kControl});
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), 21U);
  // At the host: the packet in service since 1245 ends at 1328, then the control packet (44 bytes).
  // At the switch, where data queues: sending began at 1083, a packet every 83 ns; the control
  // packet comes at 2328.88 and waits until 2328 + 83 at most.
  size_t position = 0;
  while (world.arrivals()[position].number != 50) ++position;
  EXPECT_LT(position, 18U);
  const Duration there = world.arrivals()[position].time - Instant::from_ns(1300);
  EXPECT_LE(there.ns(), 2000 + 83 + 83 + 4);
}

TEST(FabricTiming, ControlWeightLetsDataThrough) {
  FabricConfig config = full_packets();
  config.header_bytes = 1100;  // control is carried as bytes
  config.switches.control_weight = 3;
  FabricWorld world(star(4, kCable400), config);
  // Control from two hosts keeps the port busy; data comes from a third.
  for (const uint32_t from : {0U, 1U}) {
    world.send_many(from, {.to = 3, .payload = 1000, .traffic_class = TrafficClass::kControl}, 60);
  }
  world.send_many(2, {.to = 3, .number = 1000, .payload = 1000}, 10);
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), 130U);
  std::vector<size_t> data;
  for (size_t i = 0; i < 130; ++i) {
    if (world.arrivals()[i].number >= 1000) data.push_back(i);
  }
  for (size_t i = 2; i < data.size(); ++i) EXPECT_EQ(data[i] - data[i - 1], 4U) << i;
}

TEST(FabricTiming, StrictPriorityStarvesData) {
  FabricConfig config = full_packets();
  config.header_bytes = 1100;
  FabricWorld world(star(4, kCable400), config);
  for (const uint32_t from : {0U, 1U}) {
    world.send_many(from, {.to = 3, .payload = 1000, .traffic_class = TrafficClass::kControl}, 60);
  }
  world.send_many(2, {.to = 3, .number = 1000, .payload = 1000}, 10);
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), 130U);
  // One data packet may be sent at the very start; the others wait for all control packets.
  for (size_t i = 121; i < 130; ++i) EXPECT_GE(world.arrivals()[i].number, 1000U);
}

TEST(FabricTiming, ASlowReaderReadsAtItsRate) {
  FabricConfig config = full_packets();
  config.hosts.drain_rate = Rate::from_gbps(8);  // one byte per nanosecond
  FabricWorld world(star(2, kCable400), config);
  world.send_many(0, {.to = 1, .payload = kFull}, 10);
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), 10U);
  const auto size = static_cast<int64_t>(FabricWorld::datagram(kFull));
  for (size_t i = 1; i < 10; ++i) {
    EXPECT_EQ((world.arrivals()[i].time - world.arrivals()[i - 1].time).ns(), size);
  }
  EXPECT_EQ(world.arrivals()[9].waited.ns(), 9 * (size - 83));
}

TEST(FabricTiming, ReducedCableRateAppliesToLaterPackets) {
  FabricWorld world(star(2, kCable400), full_packets());
  world.fabric().set_cable_rate(1, Rate::from_gbps(40));
  world.send_many(0, {.to = 1, .payload = kFull}, 10);
  world.run_dry();
  EXPECT_EQ(world.arrivals().back().time.ns(), 2000 + 83 + 10 * 830);
}

}  // namespace
}  // namespace pacecar::test::fabric_timing_test
