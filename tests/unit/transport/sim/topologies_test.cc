// Topologies: numbers of nodes and cables, numbers of shortest paths, errors.
#include "transport/sim/topologies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/sim/routing.h"
#include "transport/sim/topology.h"

namespace pacecar::topologies_test {
namespace {

using testing::HasSubstr;

// The number of shortest paths between two hosts; each cable of a bundle counts.
uint64_t shortest_paths(const Topology& topology, const Routing& routing, NodeId at, uint32_t to) {
  if (at == to) return 1;
  uint64_t sum = 0;
  for (const LinkId link : routing.next_links(at, to)) {
    const Cable& cable = topology.cables[link / 2];
    sum += shortest_paths(topology, routing, link % 2 == 0 ? cable.b : cable.a, to);
  }
  return sum;
}

uint64_t shortest_paths(const Topology& topology, uint32_t from, uint32_t to) {
  const auto routing = make_routing(topology);
  return routing ? shortest_paths(topology, *routing, from, to) : 0;
}

std::string why_not(const Result<Topology>& topology) {
  return topology ? "it was built" : topology.error().message;
}

TEST(Topologies, StarHasOnePath) {
  const auto star = make_star({.hosts = 5, .cable = {Rate::from_gbps(25), Duration::from_ns(300)}});
  ASSERT_TRUE(star);
  EXPECT_EQ(star->hosts, 5U);
  EXPECT_EQ(star->switches, 1U);
  ASSERT_EQ(star->cables.size(), 5U);
  EXPECT_EQ(star->cables[4].rate, Rate::from_gbps(25));
  EXPECT_EQ(star->cables[4].delay, Duration::from_ns(300));
  EXPECT_EQ(star->node_names, (std::vector<std::string>{"host 0", "host 1", "host 2", "host 3",
                                                        "host 4", "switch 0"}));
  EXPECT_EQ(shortest_paths(*star, 0, 4), 1U);
}

TEST(Topologies, DumbbellCrossesItsBottleneck) {
  const auto dumbbell =
      make_dumbbell({.left = 2, .right = 3, .bottleneck = {.rate = Rate::from_gbps(10)}});
  ASSERT_TRUE(dumbbell);
  EXPECT_EQ(dumbbell->hosts, 5U);
  EXPECT_EQ(dumbbell->switches, 2U);
  ASSERT_EQ(dumbbell->cables.size(), 6U);
  EXPECT_EQ(dumbbell->cables[5].rate, Rate::from_gbps(10));
  const auto routing = make_routing(*dumbbell);
  ASSERT_TRUE(routing);
  EXPECT_THAT(routing->next_links(5, 4),
              testing::ElementsAre(10));  // from the left switch: the bottleneck
  EXPECT_THAT(routing->next_links(5, 1), testing::ElementsAre(3));  // to its own host
}

TEST(Topologies, LeafSpineHasAPathPerSpineAndCable) {
  const LeafSpineSpec spec{.hosts = 12, .hosts_per_leaf = 4, .spines = 5, .bundle = 2};
  const auto network = make_leaf_spine(spec);
  ASSERT_TRUE(network);
  EXPECT_EQ(network->switches, 3U + 5U);
  EXPECT_EQ(network->cables.size(), 12U + 3U * 5U * 2U);
  EXPECT_EQ(network->node_names[12], "leaf 0");
  EXPECT_EQ(network->node_names[15], "spine 0");
  EXPECT_EQ(shortest_paths(*network, 0, 3), 1U);
  EXPECT_EQ(shortest_paths(*network, 0, 4), 5U * 2U * 2U);
}

TEST(Topologies, TwoPortsReachBothLeavesOfAPair) {
  const auto network =
      make_leaf_spine({.hosts = 4, .hosts_per_leaf = 2, .spines = 3, .ports_per_host = 2});
  ASSERT_TRUE(network);
  EXPECT_EQ(network->switches, 4U + 3U);
  EXPECT_EQ(network->cables.size(), 4U * 2U + 4U * 3U);
  const auto routing = make_routing(*network);
  ASSERT_TRUE(routing);
  EXPECT_EQ(routing->next_links(0, 1).size(), 2U);
  EXPECT_EQ(shortest_paths(*network, 0, 1), 2U);            // over either leaf
  EXPECT_EQ(shortest_paths(*network, 0, 2), 2U * 3U * 2U);  // leaf, spine, the other pair's leaf
}

TEST(Topologies, RadixDeterminesTheFatTree) {
  const auto spec = fat_tree_of_radix(8);
  ASSERT_TRUE(spec);
  const auto tree = make_fat_tree(*spec);
  ASSERT_TRUE(tree);
  EXPECT_EQ(tree->hosts, 128U);
  EXPECT_EQ(tree->switches, 32U + 32U + 16U);
  EXPECT_EQ(tree->cables.size(), 3U * 128U);
  EXPECT_EQ(shortest_paths(*tree, 0, 1), 1U);     // the same leaf
  EXPECT_EQ(shortest_paths(*tree, 0, 4), 4U);     // the same pod: each aggregation switch
  EXPECT_EQ(shortest_paths(*tree, 0, 127), 16U);  // each core
  EXPECT_EQ(tree->node_names.back(), "core 15");
}

TEST(Topologies, FatTreeOfRadix32Has8192Hosts) {
  const auto tree = make_fat_tree(*fat_tree_of_radix(32));
  ASSERT_TRUE(tree);
  EXPECT_EQ(tree->hosts, 8192U);
  EXPECT_EQ(tree->switches, 1280U);
  EXPECT_EQ(shortest_paths(*tree, 0, 8191), 256U);
}

TEST(Topologies, FatTreeMayBeOversubscribedAndHaveFewerPods) {
  const auto spec = fat_tree_of_radix(16, 2 * 96, 3);
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->pods, 2U);
  EXPECT_EQ(spec->hosts_per_leaf, 12U);
  EXPECT_EQ(spec->aggregations_per_pod, 4U);
  const auto tree = make_fat_tree(*spec);
  ASSERT_TRUE(tree);
  EXPECT_EQ(tree->hosts, 192U);
  EXPECT_EQ(shortest_paths(*tree, 0, 191), 4U * 8U);
}

TEST(Topologies, RailsJoinGpusOfTheSameIndex) {
  const auto rails =
      make_rails({.servers = 4, .gpus_per_server = 8, .servers_per_leaf = 2, .spines = 3});
  ASSERT_TRUE(rails);
  EXPECT_EQ(rails->hosts, 32U);
  EXPECT_EQ(rails->switches, 2U * 8U + 3U);
  EXPECT_EQ(shortest_paths(*rails, 0, 8), 1U);   // the same rail and leaf
  EXPECT_EQ(shortest_paths(*rails, 0, 1), 3U);   // another rail
  EXPECT_EQ(shortest_paths(*rails, 0, 16), 3U);  // the same rail, another leaf
}

TEST(Topologies, ErrorHasCauseAndCure) {
  EXPECT_EQ(why_not(make_star({.hosts = 0})),
            "a star cannot be built: hosts is 0; give at least 1");
  EXPECT_THAT(why_not(make_star({.hosts = 4'000'000'000})), HasSubstr("make it smaller"));
  EXPECT_EQ(why_not(make_leaf_spine({.hosts = 10, .hosts_per_leaf = 4})),
            "a leaf-spine network cannot be built: hosts is 10, which is no multiple of "
            "hosts_per_leaf (4); make it 12");
  EXPECT_THAT(why_not(make_leaf_spine({.ports_per_host = 3})), HasSubstr("give 1 or 2"));
  EXPECT_THAT(why_not(make_leaf_spine({.spines = 1U << 31, .bundle = 1U << 31})),
              HasSubstr("make it smaller"));
  EXPECT_THAT(why_not(make_dumbbell({.bottleneck = {.rate = Rate()}})),
              HasSubstr("the rate of bottleneck is 0"));
  EXPECT_THAT(why_not(make_rails({.spines = 0})), HasSubstr("spines is 0"));
  EXPECT_THAT(why_not(make_fat_tree({.cable = {.delay = Duration::from_ns(-1)}})),
              HasSubstr("the delay of cable is negative"));
}

TEST(Topologies, ErrorNamesAPossibleRadix) {
  EXPECT_EQ(fat_tree_of_radix(7).error().message,
            "a fat tree cannot be built: the radix is 7; with oversubscription 1 give a multiple "
            "of 2");
  EXPECT_THAT(fat_tree_of_radix(32, 0, 2).error().message, HasSubstr("give a multiple of 6"));
  EXPECT_THAT(fat_tree_of_radix(8, 17).error().message, HasSubstr("make it 32"));
  EXPECT_THAT(fat_tree_of_radix(8, 144).error().message, HasSubstr("carry at most 128"));
}

TEST(RoutingErrors, NameTheHostsOrTheCable) {
  Topology two{.name = "islands", .hosts = 3, .switches = 2, .node_names = {"host 0", "left"}};
  two.cables = {{.a = 0, .b = 3}, {.a = 1, .b = 4}, {.a = 2, .b = 4}};
  EXPECT_EQ(make_routing(two).error().message,
            "left cannot reach host 0 in topology islands; join them by cables and switches, for "
            "hosts do not forward");
  two.cables.pop_back();
  EXPECT_THAT(make_routing(two).error().message,
              HasSubstr("host 2 of topology islands has no cable"));
  two.cables.push_back({.a = 2, .b = 9});
  EXPECT_THAT(make_routing(two).error().message, HasSubstr("cable 2 of topology islands"));
}

}  // namespace
}  // namespace pacecar::topologies_test
