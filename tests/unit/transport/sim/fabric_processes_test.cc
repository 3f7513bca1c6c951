// Several processes behind one NIC: addresses, turns, back-pressure, faults.
#include <gmock/gmock.h>

#include <map>
#include <set>
#include <vector>

#include "tests/support/fabric_world.h"

namespace pacecar::test::fabric_processes_test {
namespace {

constexpr size_t kPayload = 1000;

Topology shared_star(uint32_t hosts, uint32_t processes) {
  Topology topology = star(hosts);
  topology.processes = processes;
  return topology;
}

// The NIC holds one packet of each process.
FabricConfig one_at_a_time() {
  FabricConfig config = default_fabric();
  config.hosts.data_queue_bytes = 0;
  return config;
}

// The senders of these arrivals, in order; the number of a packet contains its sender.
std::vector<uint32_t> senders(const FabricWorld& world, uint32_t first, uint32_t count) {
  std::vector<uint32_t> list;
  for (uint32_t i = first; i < first + count; ++i) {
    list.push_back(world.arrivals()[i].number / 1000);
  }
  return list;
}

TEST(FabricProcesses, EachProcessGetsItsPackets) {
  constexpr uint32_t kProcesses = 3;
  FabricWorld world(shared_star(3, kProcesses), default_fabric());
  // Each process sends to every process of other hosts.
  uint32_t sent = 0;
  for (uint32_t from = 0; from < world.fabric().processes(); ++from) {
    for (uint32_t to = 0; to < world.fabric().processes(); ++to) {
      if (from / kProcesses == to / kProcesses) continue;
      world.send(from, {.to = to, .number = from * 1000 + to, .payload = kPayload});
      ++sent;
    }
  }
  world.run_dry();
  std::set<uint32_t> seen;
  for (const Arrival& arrival : world.arrivals()) {
    EXPECT_EQ(arrival.number % 1000, arrival.host);
    EXPECT_EQ(arrival.source.ip, world.fabric().port(arrival.number / 1000).local_address().ip);
    EXPECT_TRUE(seen.insert(arrival.number).second);
  }
  EXPECT_EQ(seen.size(), sent);
  EXPECT_TRUE(world.fabric().counters().conserved());
  EXPECT_EQ(world.fabric().counters().delivered, sent);
}

TEST(FabricProcesses, EachProcessHasItsOwnAddress) {
  FabricWorld world(shared_star(2, 4), default_fabric());
  std::set<std::array<uint8_t, 16>> addresses;
  for (uint32_t i = 0; i < 8; ++i) addresses.insert(world.fabric().port(i).local_address().ip);
  EXPECT_EQ(addresses.size(), 8U);
  EXPECT_EQ(world.fabric().port(7).caps().line_rate, world.fabric().link_info(0).rate);
}

TEST(FabricProcesses, ProcessesTakeTurnsByPacket) {
  FabricWorld world(shared_star(2, 4), one_at_a_time());
  for (uint32_t process = 0; process < 4; ++process) {
    world.send_many(process, {.to = 4 + process, .number = process * 1000, .payload = kPayload},
                    100);
  }
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), 400U);
  for (uint32_t round = 0; round < 100; ++round) {
    EXPECT_THAT(senders(world, round * 4, 4), testing::UnorderedElementsAre(0, 1, 2, 3)) << round;
  }
}

TEST(FabricProcesses, LongQueueDoesNotDelayOtherProcesses) {
  FabricConfig config = default_fabric();
  config.hosts.data_queue_bytes = 1 << 20;
  FabricWorld world(shared_star(2, 2), config);
  world.send_many(0, {.to = 2, .payload = kPayload}, 200);
  world.send_many(1, {.to = 3, .number = 1000, .payload = kPayload}, 10);
  world.run_dry();
  // Two packets are ahead: the one in service and the next one.
  EXPECT_THAT(senders(world, 2, 20), testing::Contains(1U).Times(10));
}

TEST(FabricProcesses, BackPressureConcernsOneProcess) {
  FabricWorld world(shared_star(2, 2), one_at_a_time());
  EXPECT_TRUE(world.try_send(0, {.to = 2, .payload = kPayload}));
  EXPECT_FALSE(world.try_send(0, {.to = 2, .payload = kPayload}));
  EXPECT_TRUE(world.try_send(1, {.to = 3, .payload = kPayload}));
  EXPECT_FALSE(world.try_send(1, {.to = 3, .payload = kPayload}));
  EXPECT_EQ(world.fabric().port(0).blocked_sends(), 1U);
  EXPECT_EQ(world.fabric().port(1).blocked_sends(), 1U);
  const LinkId uplink = world.link(0, 2);
  EXPECT_EQ(world.fabric().link_stats(uplink).queue_bytes,
            2 * (FabricWorld::datagram(kPayload) + HostPortConfig().overhead_bytes));
  // Both are called when there is room again.
  world.send_many(0, {.to = 2, .payload = kPayload}, 5);
  world.send_many(1, {.to = 3, .payload = kPayload}, 5);
  world.run_dry();
  EXPECT_EQ(world.arrivals().size(), 12U);
}

// Several processes together get exactly the rate that one gets alone.
TEST(FabricProcesses, ProcessesShareTheRateOfTheCable) {
  const auto time_of = [](uint32_t processes) {
    FabricWorld world(shared_star(2, processes), one_at_a_time());
    for (uint32_t process = 0; process < processes; ++process) {
      world.send_many(process, {.to = processes + process, .payload = kPayload}, 240 / processes);
    }
    world.run_dry();
    return world.loop().now();
  };
  EXPECT_EQ(time_of(1), time_of(2));
  EXPECT_EQ(time_of(1), time_of(8));
}

TEST(FabricProcesses, ControlOfOneProcessPrecedesDataOfAll) {
  FabricWorld world(shared_star(2, 2), one_at_a_time());
  world.send_many(0, {.to = 2, .payload = kPayload}, 3);
  world.send_many(1, {.to = 3, .number = 1000, .payload = kPayload}, 3);
  const Letter word{.to = 3, .number = 9000, .traffic_class = TrafficClass::kControl};
  EXPECT_TRUE(world.try_send(1, word));
  world.run_dry();
  EXPECT_EQ(world.arrivals()[1].number, 9000U);  // behind the packet in service
}

TEST(FabricProcesses, FrozenProcessDoesNotStopOthers) {
  FabricWorld world(shared_star(2, 2), default_fabric());
  SimFaults faults;
  const Instant thaw = Instant::from_ns(1'000'000);
  faults.stalls.push_back({.window = {.from = Instant(), .until = thaw}, .port = 3});
  world.fabric().set_faults(faults);
  world.send(0, {.to = 2, .number = 1, .payload = kPayload});
  world.send(0, {.to = 3, .number = 2, .payload = kPayload});
  world.run_dry();
  ASSERT_EQ(world.arrivals().size(), 2U);
  EXPECT_LT(world.arrivals()[0].time, thaw);
  EXPECT_EQ(world.arrivals()[1].host, 3U);
  EXPECT_GE(world.arrivals()[1].time, thaw);
}

// Packets of several processes that wait in the NIC are lost when its cable fails, and are counted.
TEST(FabricProcesses, WaitingPacketsAreLostWhenTheCableFails) {
  FabricConfig config = default_fabric();
  config.hosts.data_queue_bytes = 1 << 20;
  FabricWorld world(shared_star(2, 4), config);
  for (uint32_t process = 0; process < 4; ++process) {
    world.send_many(process, {.to = 4 + process, .payload = kPayload}, 50);
  }
  EXPECT_EQ(world.fabric().counters().in_flight, 200U);
  EXPECT_TRUE(world.fabric().counters().conserved());
  world.fabric().set_cable_up(0, false);
  world.run_dry();
  EXPECT_EQ(world.fabric().counters().dropped_for(FabricDrop::kLinkDown), 200U);
  EXPECT_TRUE(world.fabric().counters().conserved());
}

TEST(FabricProcesses, SameSeedGivesTheSameRun) {
  const auto hash_of = [](uint32_t processes, uint64_t seed) {
    FabricConfig config = default_fabric();
    config.switches.queue_bytes = 20'000;
    FabricWorld world(shared_star(4, processes), config, seed);
    SimFaults faults;
    faults.loss = 0.01;
    faults.reordering = 0.05;
    world.fabric().set_faults(faults);
    for (uint32_t process = processes; process < 4 * processes; ++process) {
      world.send_many(process, {.to = process % processes, .payload = kPayload}, 50);
    }
    world.run_dry();
    EXPECT_TRUE(world.fabric().counters().conserved());
    return world.fabric().trace_hash();
  };
  EXPECT_EQ(hash_of(4, 7), hash_of(4, 7));
  EXPECT_NE(hash_of(4, 7), hash_of(4, 8));
  EXPECT_NE(hash_of(4, 7), hash_of(2, 7));
}

TEST(FabricProcesses, InvalidNumberOfProcessesIsRefused) {
  EventLoop loop;
  for (const uint32_t processes : {0U, 257U}) {
    const auto made = Fabric::create(loop, shared_star(2, processes), default_fabric(), 1);
    ASSERT_FALSE(made.has_value());
    EXPECT_THAT(made.error().message, testing::HasSubstr("processes per host: choose 1 to 256"));
  }
}

}  // namespace
}  // namespace pacecar::test::fabric_processes_test
