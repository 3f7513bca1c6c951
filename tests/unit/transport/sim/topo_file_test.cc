// .topo files: the topologies that they give, and the errors of invalid files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "transport/sim/routing.h"
#include "transport/sim/topologies.h"
#include "transport/sim/topology.h"

namespace pacecar::topo_file_test {
namespace {

using testing::HasSubstr;

constexpr std::string_view kTwoTiers = R"(# two tiers
Nodes 128
Tiers 2
Podsize 128

Tier 0
Downlink_speed_Gbps 400
Radix_Down 16
Radix_Up 16
Downlink_Latency_ns 1000
Oversubscribed 1
Switch_Latency_ns 100

Tier 1
Downlink_speed_Gbps 200
Radix_Down 16
Bundle 2
Downlink_Latency_ns 2000
Switch_Latency_ns 40
)";

constexpr std::string_view kThreeTiers = R"(
nodes 64
tiers 3
podsize 16
tier 0
downlink_speed_gbps 100
downlink_latency_ns 500
radix_down 8
radix_up 4
oversubscribed 2
tier 2
downlink_speed_gbps 400
downlink_latency_ns 3000
radix_down 8
bundle 2
tier 1
downlink_speed_gbps 100
downlink_latency_ns 1000
radix_down 2
radix_up 4
)";

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result(text);
  const size_t place = result.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return result.replace(place, from.size(), to);
}

std::string why_not(std::string_view text) {
  const auto topology = parse_topo(text, "net.topo");
  return topology ? "it was read" : topology.error().message;
}

TEST(TopoFile, TwoTiersAreALeafSpineNetwork) {
  const auto network = parse_topo(replaced(kTwoTiers, "Oversubscribed 1\n", ""), "net.topo");
  ASSERT_TRUE(network) << network.error().message;
  EXPECT_EQ(network->name, "net.topo");
  EXPECT_EQ(network->hosts, 128U);
  EXPECT_EQ(network->switches, 8U + 8U);
  EXPECT_EQ(network->cables.size(), 128U + 8U * 16U);
  EXPECT_EQ(network->cables.front().rate, Rate::from_gbps(400));
  EXPECT_EQ(network->cables.front().delay, Duration::from_ns(1050));
  EXPECT_EQ(network->cables.back().rate, Rate::from_gbps(200));
  EXPECT_EQ(network->cables.back().delay, Duration::from_ns(2070));
}

TEST(TopoFile, ThreeTiersAreAFatTree) {
  const auto network = parse_topo(kThreeTiers, "net.topo");
  ASSERT_TRUE(network) << network.error().message;
  EXPECT_EQ(network->hosts, 64U);
  EXPECT_EQ(network->switches, 8U + 16U + 8U);
  EXPECT_EQ(network->cables.size(), 64U + 8U * 4U + 16U * 2U * 2U);
  EXPECT_EQ(network->cables.back().delay, Duration::from_ns(3000));
  EXPECT_TRUE(make_routing(*network));
}

TEST(TopoFile, ErrorHasFileLineCauseAndCure) {
  EXPECT_EQ(
      why_not(kTwoTiers),
      "net.topo, line 11: a switch of tier 0 has 6400 Gb/s down and 3200 Gb/s up, which is no "
      "oversubscription of 1; correct it, the radixes or the speeds, or remove it");
  EXPECT_EQ(why_not(replaced(kTwoTiers, "Podsize 128", "Podsize many")),
            "net.topo, line 4: write Podsize and one whole number from 1 to 1048576");
  EXPECT_EQ(why_not(replaced(kTwoTiers, "Podsize 128", "Podsize 64")),
            "net.topo, line 4: 128 nodes are not made of pods of 64; with two tiers the only pod "
            "has all nodes, with three make Nodes a multiple of Podsize");
  EXPECT_EQ(why_not(replaced(kTwoTiers, "Podsize 128\n", "")),
            "net.topo: podsize is missing before the first Tier; add it");
  EXPECT_EQ(why_not(replaced(kTwoTiers, "Bundle 2", "Bundel 2")),
            "net.topo, line 17: 'Bundel' is not known in a tier; use downlink_speed_gbps, "
            "downlink_latency_ns, radix_down, radix_up, bundle, switch_latency_ns, oversubscribed");
  EXPECT_EQ(why_not(replaced(kTwoTiers, "Bundle 2", "Bundle 1")),
            "net.topo, line 16: a switch of tier 1 has a bundle of 1 to each of 8 leaves below; "
            "make its Radix_down 8");
  EXPECT_EQ(why_not(replaced(kTwoTiers, "Radix_Up 16", "Radix_Up 15")),
            "net.topo, line 9: 15 cables up do not make bundles of 2; make Radix_up a multiple of "
            "the bundle of tier 1");
}

TEST(TopoFile, RepeatedMissingAndExcessKeysAreNamed) {
  EXPECT_THAT(why_not(replaced(kTwoTiers, "Tier 1", "Tier 0")),
              HasSubstr("line 14: tier 0 was given in line 6 already"));
  EXPECT_THAT(why_not(replaced(kTwoTiers, "Tier 1", "Tier one")), HasSubstr("0, 1 or 2"));
  EXPECT_THAT(why_not(replaced(kTwoTiers, "Bundle 2", "Radix_Down 4")),
              HasSubstr("line 17: Radix_Down was given in line 16 already"));
  EXPECT_THAT(why_not(replaced(kTwoTiers, "Radix_Up 16\n", "")),
              HasSubstr("radix_up is missing in tier 0"));
  EXPECT_THAT(why_not(replaced(kThreeTiers, "tiers 3", "tiers 2")),
              HasSubstr("line 11: tier 2 is one too many"));
  EXPECT_THAT(why_not(replaced(kThreeTiers, "bundle 2", "radix_up 2")),
              HasSubstr("nothing is above tier 2"));
  EXPECT_THAT(why_not(replaced(kThreeTiers, "bundle 2", "queue_down 100000")),
              HasSubstr("remove queue_down, and give the size of queues with the switches"));
  EXPECT_THAT(why_not(replaced(kThreeTiers, "radix_down 8", "bundle 2\nradix_down 8")),
              HasSubstr("a host has one cable"));
  EXPECT_THAT(why_not(replaced(kThreeTiers, "podsize 16", "podsize 4")),
              HasSubstr("leaves of 8 hosts do not make up a pod of 4"));
  EXPECT_THAT(why_not(""), HasSubstr("nodes is missing"));
}

TEST(TopoFile, UnreadableFileIsNamed) {
  const auto network = read_topo_file("/no/such/file.topo");
  ASSERT_FALSE(network);
  EXPECT_EQ(network.error().code, ErrorCode::kSystem);
  EXPECT_THAT(network.error().message, HasSubstr("'/no/such/file.topo' cannot be read"));
  EXPECT_FALSE(read_topo_file("/"));
}

}  // namespace
}  // namespace pacecar::topo_file_test
