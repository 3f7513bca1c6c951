// Completion times in an empty fabric, against values computed by hand and packet by packet.
#include "bench/sim/ideal.h"

#include <gtest/gtest.h>

#include <vector>

#include "transport/base/prng.h"
#include "transport/sim/routing.h"
#include "transport/sim/topologies.h"

namespace pacecar::ideal_test {
namespace {

constexpr PacketSizes kSizes{.mtu = 4086, .overhead = 64, .ack = 64};

std::vector<Hop> same_hops(size_t count, Rate rate) {
  return std::vector<Hop>(count, Hop{rate, Duration::from_us(1), rate});
}

TEST(SimulationIdeal, OnePacketIsSerialisedAtEachHop) {
  // 4150 B at 400G take 83 ns; 64 B take 1.28 ns.
  const auto way = same_hops(4, Rate::from_gbps(400));
  EXPECT_EQ(completion_time(way, {}, 4086, kSizes), Duration::from_ns(4 * 1083));
  EXPECT_EQ(completion_time(way, way, 4086, kSizes), Duration::from_ns(4332 + 4000 + 6));
}

TEST(SimulationIdeal, ALongMessageIsPipelined) {
  const auto way = same_hops(2, Rate::from_gbps(400));
  // 1 MB: 244 full packets and one of 3,016 B of payload.
  EXPECT_EQ(completion_time(way, {}, 1'000'000, kSizes),
            Duration::from_ns(244 * 83 + 83 + 2000 + (3080 * 8 + 399) / 400));
}

TEST(SimulationIdeal, AnEmptyMessageIsOnePacket) {
  EXPECT_EQ(completion_time(same_hops(1, Rate::from_gbps(1)), {}, 0, kSizes),
            Duration::from_ns(1000 + 512));
}

// Every packet on every hop, in picoseconds.
Duration packet_by_packet(const std::vector<Hop>& way, Bytes message, const PacketSizes& sizes) {
  std::vector<Bytes> packets(message / sizes.mtu, sizes.mtu + sizes.overhead);
  if (message % sizes.mtu != 0) packets.push_back(message % sizes.mtu + sizes.overhead);
  std::vector<int64_t> ready(packets.size(), 0);
  for (const Hop& hop : way) {
    int64_t free = 0;
    for (size_t i = 0; i < packets.size(); ++i) {
      free = std::max(free, ready[i]) +
             static_cast<int64_t>(packets[i] * 8'000'000 / (hop.rate.bps() / 1'000'000));
      ready[i] = free + hop.delay.ns() * 1000;
    }
  }
  return Duration::from_ns((ready.back() + 999) / 1000);
}

TEST(SimulationIdeal, FormulaMatchesPacketByPacketTimes) {
  constexpr uint64_t kGbps[] = {10, 25, 40, 100, 400};
  Prng random(1);
  for (int i = 0; i < 300; ++i) {
    std::vector<Hop> way;
    for (uint64_t hops = 1 + random.below(6); hops > 0; --hops) {
      const Rate rate = Rate::from_gbps(kGbps[random.below(5)]);
      way.push_back({rate, Duration::from_ns(static_cast<int64_t>(random.below(3000))), rate});
    }
    const Bytes message = 1 + random.below(100'000);
    EXPECT_EQ(completion_time(way, {}, message, kSizes), packet_by_packet(way, message, kSizes))
        << message << " bytes, " << way.size() << " hops";
  }
}

TEST(SimulationIdeal, TheLongestRoundTripIsThatOfTheFarthestHosts) {
  const Topology topology =
      make_leaf_spine({.hosts = 16,
                       .hosts_per_leaf = 4,
                       .spines = 2,
                       .cable = {Rate::from_gbps(400), Duration::from_us(1)},
                       .uplink = {Rate::from_gbps(400), Duration::from_us(1)}})
          .value();
  const Routing routing = make_routing(topology).value();
  const auto near = path_between(topology, routing, 0, 1, Spread::kNo);
  const auto far = path_between(topology, routing, 0, 15, Spread::kNo);
  EXPECT_EQ(near.size(), 2U);
  EXPECT_EQ(far.size(), 4U);
  EXPECT_EQ(longest_round_trip(topology, routing, kSizes),
            completion_time(far, far, kSizes.mtu, kSizes));
}

TEST(SimulationIdeal, SpreadPacketsUseAllCables) {
  const Topology topology =
      make_leaf_spine({.hosts = 8,
                       .hosts_per_leaf = 4,
                       .spines = 4,
                       .cable = {Rate::from_gbps(400), Duration::from_us(1)},
                       .uplink = {Rate::from_gbps(100), Duration::from_us(1)}})
          .value();
  const Routing routing = make_routing(topology).value();
  const auto time = [&](Spread spread) {
    return completion_time(path_between(topology, routing, 0, 7, spread), {}, 4086 * 1000, kSizes);
  };
  // 83 ns per packet at 400G, 332 ns at 100G; 1000 packets, two hops at 100G.
  EXPECT_EQ(time(Spread::kYes), Duration::from_ns(1000 * 83 + 2 * 332 + 83 + 4000));
  EXPECT_EQ(time(Spread::kNo), Duration::from_ns(83 + 1000 * 332 + 332 + 83 + 4000));
}

TEST(SimulationIdeal, LongestRoundTripOfTwoHostsIsBetweenThem) {
  const Topology topology = make_star({.hosts = 2, .cable = {}}).value();
  const Routing routing = make_routing(topology).value();
  const auto way = path_between(topology, routing, 0, 1, Spread::kNo);
  EXPECT_EQ(longest_round_trip(topology, routing, kSizes),
            completion_time(way, way, kSizes.mtu, kSizes));
}

}  // namespace
}  // namespace pacecar::ideal_test
