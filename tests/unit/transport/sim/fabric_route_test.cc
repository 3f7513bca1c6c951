// The paths of packets: hashes, several ports per host, cables that fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/support/fabric_world.h"

namespace pacecar::test::fabric_route_test {
namespace {

constexpr CableSpec kCable{.rate = Rate::from_gbps(400)};

// Pearson's statistic for equal expectations.
double chi_square(const std::vector<uint64_t>& counts) {
  double sum = 0;
  for (const uint64_t count : counts) sum += static_cast<double>(count);
  const double expected = sum / static_cast<double>(counts.size());
  double square = 0;
  for (const uint64_t count : counts) {
    const double off = static_cast<double>(count) - expected;
    square += off * off / expected;
  }
  return square;
}

constexpr double kSixteenWays = 37.7;  // 15 degrees of freedom, 99.9%

// Packets that a node has sent to nodes from `first` on.
std::vector<uint64_t> sent_to(FabricWorld& world, NodeId from, NodeId first) {
  std::vector<uint64_t> sent;
  for (LinkId link = 0; link < world.fabric().links(); ++link) {
    const LinkInfo info = world.fabric().link_info(link);
    if (info.from == from && info.to >= first) {
      sent.push_back(world.fabric().link_stats(link).sent_packets);
    }
  }
  return sent;
}

TEST(FabricRoute, FlowsSpreadEvenlyOverUplinks) {
  FabricWorld world(
      make_leaf_spine(
          {.hosts = 128, .hosts_per_leaf = 16, .spines = 16, .cable = kCable, .uplink = kCable})
          .value(),
      default_fabric());
  for (uint32_t to = 16; to < 128; ++to) {
    for (uint16_t path = 0; path < 64; ++path) world.send(0, {.to = to, .path = path});
  }
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), 112U * 64);
  const auto sent = sent_to(world, 128, 128);
  ASSERT_EQ(sent.size(), 16U);
  EXPECT_LT(chi_square(sent), kSixteenWays);
}

TEST(FabricRoute, PacketsOfOnePathUseOneUplink) {
  FabricConfig config = default_fabric();
  config.switches.telemetry = true;
  FabricWorld world(
      make_leaf_spine(
          {.hosts = 8, .hosts_per_leaf = 4, .spines = 16, .cable = kCable, .uplink = kCable})
          .value(),
      config);
  world.send_many(0, {.to = 7, .path = 3}, 100);
  world.run_dry();
  const auto sent = sent_to(world, 8, 8);
  EXPECT_EQ(std::count(sent.begin(), sent.end(), 100U), 1);
  EXPECT_EQ(std::count(sent.begin(), sent.end(), 0U), 15);
}

// The choice of one tier does not determine the choice of the next: each aggregation switch spreads
// its packets evenly over the cores.
TEST(FabricRoute, SwitchesChooseIndependently) {
  FabricWorld world(make_fat_tree({.pods = 2,
                                   .leaves_per_pod = 1,
                                   .hosts_per_leaf = 16,
                                   .aggregations_per_pod = 4,
                                   .cores_per_aggregation = 16,
                                   .cable = kCable,
                                   .leaf_uplink = kCable,
                                   .core_uplink = kCable})
                        .value(),
                    default_fabric());
  for (uint32_t from = 0; from < 16; ++from) {
    for (uint32_t to = 16; to < 32; ++to) {
      for (uint16_t path = 0; path < 64; ++path) world.send(from, {.to = to, .path = path});
    }
  }
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), 16U * 16 * 64);
  // Nodes: 32 hosts, two leaves, four aggregation switches per pod, then the cores.
  for (NodeId aggregation = 34; aggregation < 38; ++aggregation) {
    const auto sent = sent_to(world, aggregation, 42);
    ASSERT_EQ(sent.size(), 16U);
    EXPECT_LT(chi_square(sent), kSixteenWays) << "node " << aggregation;
  }
}

Topology four_ways() {
  return make_leaf_spine(
             {.hosts = 4, .hosts_per_leaf = 2, .spines = 4, .cable = kCable, .uplink = kCable})
      .value();
}

// The cable on which the packets of this path leave the first leaf.
uint32_t cable_of_path(FabricWorld& world, uint16_t path) {
  std::vector<uint64_t> before;
  for (LinkId link = 0; link < world.fabric().links(); ++link) {
    before.push_back(world.fabric().link_stats(link).sent_packets);
  }
  world.send(0, {.to = 3, .path = path});
  world.run_dry();
  for (LinkId link = 0; link < world.fabric().links(); ++link) {
    const LinkInfo info = world.fabric().link_info(link);
    if (info.from == 4 && world.fabric().link_stats(link).sent_packets > before[link]) {
      return link / 2;
    }
  }
  return ~0U;
}

TEST(FabricFailure, PacketsOnAFailedCableAreLost) {
  FabricWorld world(star(2, kCable), default_fabric());
  world.send_many(0, {.to = 1, .payload = 4000}, 100);
  world.run_for(Duration::from_us(3));
  world.fabric().set_cable_up(1, false);  // the cable of host 1
  const auto arrived = world.arrivals().size();
  world.run_dry();
  EXPECT_EQ(world.arrivals().size(), arrived);
  const FabricCounters counters = world.fabric().counters();
  EXPECT_EQ(counters.sent, 100U);
  EXPECT_EQ(counters.dropped_for(FabricDrop::kLinkDown), 100U - arrived);
  EXPECT_TRUE(counters.conserved());
  EXPECT_EQ(counters.in_flight, 0U);

  world.fabric().set_cable_up(1, true);
  world.send(0, {.to = 1, .number = 500});
  world.run_dry();
  EXPECT_EQ(world.arrivals().back().number, 500U);
}

TEST(FabricFailure, OtherPathsAreUsedAfterTheFailover) {
  FabricConfig config = default_fabric();
  config.failover = Duration::from_us(50);
  FabricWorld world(four_ways(), config);
  const uint32_t cable = cable_of_path(world, 5);
  world.clear_arrivals();
  world.fabric().set_cable_up(cable, false);
  world.send(0, {.to = 3, .number = 1, .path = 5});
  world.run_for(Duration::from_us(49));
  EXPECT_TRUE(world.arrivals().empty());
  EXPECT_EQ(world.fabric().counters().dropped_for(FabricDrop::kLinkDown), 1U);
  world.run_for(Duration::from_us(1));
  world.send(0, {.to = 3, .number = 2, .path = 5});
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), 1U);
  EXPECT_EQ(world.arrivals()[0].number, 2U);
  EXPECT_NE(cable_of_path(world, 5), cable);
  world.fabric().set_cable_up(cable, true);
  EXPECT_EQ(cable_of_path(world, 5), cable);
}

// A spine that has lost its only cable to the other leaf cannot reach the hosts there.
TEST(FabricFailure, RemoteFailureIsAvoided) {
  FabricWorld world(four_ways(), default_fabric());
  constexpr NodeId kFirstSpine = 6;
  for (uint32_t cable = 0; cable < world.fabric().links() / 2; ++cable) {
    const LinkInfo info = world.fabric().link_info(2 * cable);
    const NodeId spine = std::max(info.from, info.to);
    const NodeId leaf = std::min(info.from, info.to);
    if (leaf == 5 && spine > kFirstSpine) world.fabric().set_cable_up(cable, false);
  }
  world.run_for(Duration::from_us(1));
  for (uint16_t path = 0; path < 20; ++path) world.send(0, {.to = 3, .path = path});
  for (uint16_t path = 0; path < 20; ++path) world.send(3, {.to = 1, .path = path});
  world.run_dry();
  EXPECT_EQ(world.arrivals().size(), 40U);
  EXPECT_EQ(world.fabric().counters().all_dropped(), 0U);
}

TEST(FabricFailure, AShortFlapChangesNoRoute) {
  FabricConfig config = default_fabric();
  config.failover = Duration::from_us(50);
  FabricWorld world(four_ways(), config);
  const uint32_t cable = cable_of_path(world, 5);
  world.fabric().set_cable_up(cable, false);
  world.run_for(Duration::from_us(10));
  world.fabric().set_cable_up(cable, true);
  world.run_for(Duration::from_us(100));
  EXPECT_EQ(cable_of_path(world, 5), cable);
}

TEST(FabricFailure, PacketsWithoutAnotherPathAreDropped) {
  FabricWorld world(four_ways(), default_fabric());
  world.fabric().set_cable_up(0, false);  // the cable of host 0
  world.run_for(Duration::from_us(1));
  world.send(1, {.to = 0});
  world.send(0, {.to = 1});
  world.run_dry();
  EXPECT_TRUE(world.arrivals().empty());
  EXPECT_EQ(world.fabric().counters().dropped_for(FabricDrop::kLinkDown), 2U);
}

TEST(FabricFailure, HostThatWaitsForAFailedCableMaySend) {
  FabricWorld world(star(2, kCable), default_fabric());
  world.send_many(0, {.to = 1, .payload = 4000}, 50);
  ASSERT_GT(world.unsent(0), 0U);
  world.fabric().set_cable_up(0, false);
  world.run_dry();
  EXPECT_EQ(world.unsent(0), 0U);
  EXPECT_EQ(world.fabric().counters().dropped_for(FabricDrop::kLinkDown), 50U);
}

TEST(FabricFailure, ALossyCableLosesItsShare) {
  FabricWorld world(star(2, kCable), default_fabric(), 3);
  world.fabric().set_cable_loss(0, 0.1);
  world.send_many(0, {.to = 1}, 20'000);
  world.run_dry();
  const auto lost = static_cast<double>(world.fabric().counters().dropped_for(FabricDrop::kLoss));
  EXPECT_NEAR(lost, 2000, 5 * std::sqrt(20'000 * 0.1 * 0.9));
  EXPECT_EQ(world.fabric().link_stats(0).dropped + world.fabric().link_stats(1).dropped, lost);
}

TEST(FabricRoute, DualPortHostUsesBothPortsAndSurvivesALostOne) {
  FabricWorld world(make_leaf_spine({.hosts = 8,
                                     .hosts_per_leaf = 4,
                                     .spines = 2,
                                     .ports_per_host = 2,
                                     .cable = kCable,
                                     .uplink = kCable})
                        .value(),
                    default_fabric());
  EXPECT_EQ(world.fabric().port(0).caps().line_rate, Rate::from_gbps(800));
  std::vector<LinkId> own;
  for (LinkId link = 0; link < world.fabric().links(); ++link) {
    if (world.fabric().link_info(link).from == 0) own.push_back(link);
  }
  ASSERT_EQ(own.size(), 2U);
  for (uint16_t path = 0; path < 64; ++path) world.send(0, {.to = 7, .path = path});
  world.run_dry();
  for (const LinkId link : own) EXPECT_GT(world.fabric().link_stats(link).sent_packets, 15U);
  EXPECT_EQ(world.arrivals().size(), 64U);

  world.fabric().set_cable_up(own[0] / 2, false);
  world.run_for(Duration::from_us(1));
  world.clear_arrivals();
  for (uint16_t path = 0; path < 64; ++path) world.send(0, {.to = 7, .path = path});
  world.run_dry();
  EXPECT_EQ(world.arrivals().size(), 64U);
}

}  // namespace
}  // namespace pacecar::test::fabric_route_test
