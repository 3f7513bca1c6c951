// Priority flow control: no packet of the data class is lost, even in an incast.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/fabric_world.h"
#include "transport/sim/switch_buffer.h"

namespace pacecar::test::fabric_pfc_test {
namespace {

constexpr Bytes kFullBytes = 4150;
constexpr size_t kFull = kFullBytes - 20 - FabricWorld::kHeader - FabricWorld::kTrailer;

TEST(SwitchBuffer, IngressPausesBeyondItsShareOfTheFreeBuffer) {
  SwitchBuffer buffer(
      {.buffer_bytes = 1000, .pfc = {.enabled = true, .alpha = 0.5, .resume_offset = 100}});
  IngressShare a{.headroom_limit = 250};
  IngressShare b{.headroom_limit = 250};
  EXPECT_TRUE(buffer.admit_data(a, 100));  // 0.5 * 1000
  EXPECT_TRUE(buffer.admit_data(a, 200));  // 0.5 * 900
  EXPECT_FALSE(buffer.should_pause(a));
  EXPECT_TRUE(buffer.admit_data(b, 300));  // 0.5 * 700
  EXPECT_FALSE(buffer.should_pause(b));
  // 0.5 * 400 is less than a holds: its next packets go to the headroom.
  EXPECT_TRUE(buffer.admit_data(a, 50));
  EXPECT_TRUE(buffer.should_pause(a));
  EXPECT_EQ(a.headroom_bytes, 50U);
  a.pausing = true;
  EXPECT_TRUE(buffer.admit_data(a, 200));
  EXPECT_FALSE(buffer.admit_data(a, 1)) << "no headroom is left";
  EXPECT_EQ(buffer.held_bytes(), 850U);

  buffer.release_data(b, 300);
  buffer.release_data(a, 100);  // headroom first
  EXPECT_EQ(a.headroom_bytes, 150U);
  EXPECT_EQ(a.shared_bytes, 300U);
  EXPECT_FALSE(buffer.should_resume(a));
  buffer.release_data(a, 200);
  EXPECT_EQ(a.headroom_bytes, 0U);
  EXPECT_EQ(a.shared_bytes, 250U);
  EXPECT_TRUE(buffer.should_resume(a));  // 250 + 100 <= 0.5 * 750
  EXPECT_EQ(buffer.max_bytes(), 850U);
  EXPECT_EQ(buffer.held_bytes(), 250U);
}

TEST(SwitchBuffer, HeadroomIsUsedUntilItIsEmpty) {
  SwitchBuffer buffer({.buffer_bytes = 1000, .pfc = {.enabled = true, .alpha = 0.5}});
  IngressShare a{.headroom_limit = 250};
  IngressShare b;
  for (const Bytes size : {100, 200}) ASSERT_TRUE(buffer.admit_data(a, size));
  ASSERT_TRUE(buffer.admit_data(b, 300));
  ASSERT_TRUE(buffer.admit_data(a, 50));
  EXPECT_EQ(a.headroom_bytes, 50U);
  buffer.release_data(b, 300);
  ASSERT_TRUE(buffer.admit_data(a, 50));  // 300 + 50 <= 0.5 * 700
  EXPECT_EQ(a.headroom_bytes, 100U);
  EXPECT_EQ(a.shared_bytes, 300U);
}

TEST(SwitchBuffer, IngressResumesAnOffsetBelowItsThreshold) {
  SwitchBuffer buffer(
      {.buffer_bytes = 1000, .pfc = {.enabled = true, .alpha = 0.5, .resume_offset = 100}});
  IngressShare a{.headroom_limit = 250, .pausing = true};
  for (const Bytes size : {100, 250}) ASSERT_TRUE(buffer.admit_data(a, size));
  buffer.release_data(a, 40);
  EXPECT_FALSE(buffer.should_resume(a));  // 310 + 100 > 0.5 * 690
  buffer.release_data(a, 50);
  EXPECT_TRUE(buffer.should_resume(a));  // 260 + 100 <= 0.5 * 740
}

// 128 hosts each send a hundred packets to one host at the same time.
void incast(FabricWorld& world) {
  for (uint32_t from = 1; from <= 128; ++from) {
    world.send_many(from, {.to = 0, .payload = kFull, .path = static_cast<uint16_t>(from % 64)},
                    100);
  }
}

Topology leaf_spine() {
  const CableSpec cable{.rate = Rate::from_gbps(400)};
  return make_leaf_spine(
             {.hosts = 144, .hosts_per_leaf = 16, .spines = 8, .cable = cable, .uplink = cable})
      .value();
}

FabricConfig small_buffers(bool pfc) {
  FabricConfig config;
  config.hosts.overhead_bytes = 20;
  config.switches.buffer_bytes = 2 << 20;
  config.switches.pfc.enabled = pfc;
  return config;
}

TEST(FabricPfc, LosesNothingAt128To1) {
  FabricWorld world(leaf_spine(), small_buffers(true));
  incast(world);
  world.run_dry();
  const FabricCounters counters = world.fabric().counters();
  EXPECT_EQ(world.arrivals().size(), 128U * 100);
  EXPECT_EQ(counters.all_dropped(), 0U);
  EXPECT_TRUE(counters.conserved());
  EXPECT_GT(counters.pauses, 100U);
  Duration paused;
  for (LinkId link = 0; link < world.fabric().links(); ++link) {
    paused = paused + world.fabric().link_stats(link).paused;
  }
  EXPECT_GT(paused, Duration::from_us(100));
  // The sink's cable was always busy: 83 ns per packet, after 4 us of cable delay and 3 switches.
  EXPECT_LE(world.loop().now().ns(), 128 * 100 * 83 + 4 * 1000 + 3 * 83 + 100);
}

TEST(FabricPfc, SameIncastLosesPacketsWithoutPfc) {
  FabricWorld world(leaf_spine(), small_buffers(false));
  incast(world);
  world.run_dry();
  const FabricCounters counters = world.fabric().counters();
  EXPECT_GT(counters.dropped_for(FabricDrop::kQueueFull), 1000U);
  EXPECT_EQ(counters.pauses, 0U);
  EXPECT_TRUE(counters.conserved());
}

TEST(FabricPfc, LosesNothingWithAnyAlpha) {
  for (const double alpha : {0.01, 0.125, 1.0, 8.0}) {
    FabricConfig config = small_buffers(true);
    config.switches.pfc.alpha = alpha;
    FabricWorld world(leaf_spine(), config);
    incast(world);
    world.run_dry();
    EXPECT_EQ(world.arrivals().size(), 128U * 100) << alpha;
    EXPECT_EQ(world.fabric().counters().all_dropped(), 0U) << alpha;
  }
}

TEST(FabricPfc, ControlPacketsPassAPausedLink) {
  FabricConfig config = small_buffers(true);
  config.switches.buffer_bytes = 20 * kFullBytes;
  FabricWorld world(star(4, {.rate = Rate::from_gbps(400)}), config);
  for (const uint32_t from : {0U, 1U}) world.send_many(from, {.to = 3, .payload = kFull}, 200);
  world.run_for(Duration::from_us(5));
  ASSERT_GT(world.fabric().counters().pauses, 0U);
  world.clear_arrivals();
  ASSERT_TRUE(
      world.try_send(0, {.to = 3, .number = 77'777, .traffic_class = TrafficClass::kControl}));
  world.run_for(Duration::from_ns(2000 + 2 * 83 + 4));
  const auto& arrivals = world.arrivals();
  EXPECT_TRUE(std::any_of(arrivals.begin(), arrivals.end(),
                          [](const Arrival& arrival) { return arrival.number == 77'777; }));
  world.run_dry();
  EXPECT_EQ(world.fabric().counters().all_dropped(), 0U);
  EXPECT_EQ(world.fabric().counters().delivered, 401U);
}

TEST(FabricPfc, HostWithAQueueOfOnePacketResumesAfterAPause) {
  FabricConfig config = small_buffers(true);
  config.hosts.datagram_bytes = kFullBytes - config.hosts.overhead_bytes;
  config.hosts.data_queue_bytes = kFullBytes;
  FabricWorld world(leaf_spine(), config);
  incast(world);
  world.run_dry();
  EXPECT_GT(world.fabric().counters().pauses, 100U);
  EXPECT_EQ(world.arrivals().size(), 128U * 100);
}

// The failure of a cable ends a pause at both ends of the cable.
TEST(FabricPfc, SenderIsPausedAgainAfterAFailure) {
  FabricConfig config = small_buffers(true);
  config.switches.buffer_bytes = 20 * kFullBytes;
  FabricWorld world(star(4, {.rate = Rate::from_gbps(400)}), config);
  for (const uint32_t from : {0U, 1U}) world.send_many(from, {.to = 3, .payload = kFull}, 300);
  while (world.fabric().counters().pauses == 0) world.run_for(Duration::from_ns(10));
  world.run_for(Duration::from_us(2));  // all packets of the cable are in the headroom
  world.fabric().set_cable_up(0, false);
  world.fabric().set_cable_up(0, true);
  world.run_dry();
  const FabricCounters counters = world.fabric().counters();
  EXPECT_EQ(counters.dropped_for(FabricDrop::kQueueFull), 0U);
  EXPECT_EQ(counters.delivered + counters.dropped_for(FabricDrop::kLinkDown), 600U);
}

TEST(FabricPfc, TooLittleHeadroomLosesPackets) {
  FabricConfig config = small_buffers(true);
  config.switches.pfc.headroom = 2 * kFullBytes;  // far less than 1 us at 400 Gb/s needs
  FabricWorld world(leaf_spine(), config);
  incast(world);
  world.run_dry();
  EXPECT_GT(world.fabric().counters().dropped_for(FabricDrop::kQueueFull), 0U);
}

}  // namespace
}  // namespace pacecar::test::fabric_pfc_test
