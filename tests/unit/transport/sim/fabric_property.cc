// Random topologies, configurations, traffic, faults and failures. The counters account for every
// packet, no packet remains in the end, and the same seed gives the same run.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/support/fabric_world.h"
#include "transport/base/prng.h"

namespace pacecar::test::fabric_property {
namespace {

CableSpec random_cable(Prng& random) {
  return {.rate = Rate::from_bps(1'000'000'000 + random.below(400'000'000'000)),
          .delay = Duration::from_ns(static_cast<int64_t>(random.below(3000)))};
}

Topology random_topology(Prng& random) {
  switch (random.below(4)) {
    case 0:
      return make_star({.hosts = static_cast<uint32_t>(2 + random.below(8)),
                        .cable = random_cable(random)})
          .value();
    case 1:
      return make_dumbbell({.left = static_cast<uint32_t>(1 + random.below(4)),
                            .right = static_cast<uint32_t>(1 + random.below(4)),
                            .cable = random_cable(random),
                            .bottleneck = random_cable(random)})
          .value();
    case 2:
      return make_leaf_spine({.hosts = 16,
                              .hosts_per_leaf = 4,
                              .spines = static_cast<uint32_t>(1 + random.below(4)),
                              .ports_per_host = static_cast<uint32_t>(1 + random.below(2)),
                              .cable = random_cable(random),
                              .uplink = random_cable(random)})
          .value();
    default:
      return make_fat_tree({.pods = static_cast<uint32_t>(2 + random.below(2)),
                            .cable = random_cable(random),
                            .leaf_uplink = random_cable(random),
                            .core_uplink = random_cable(random)})
          .value();
  }
}

FabricConfig random_config(Prng& random) {
  FabricConfig config;
  config.payload = random.chance(0.5) ? PayloadMode::kBytes : PayloadMode::kLength;
  config.packets = random.chance(0.2) ? 1 + random.below(50) : 100'000;
  config.failover = Duration::from_us(static_cast<int64_t>(random.below(20)));
  config.hosts.inbox_bytes = 8192 << random.below(8);
  config.hosts.data_queue_bytes = 8192 << random.below(4);
  if (random.chance(0.1)) config.hosts.drain_rate = Rate::from_gbps(1 + random.below(50));
  SwitchConfig& switches = config.switches;
  switches.telemetry = random.chance(0.3);
  switches.control_weight = static_cast<uint32_t>(random.below(4));
  switches.ecn = {.kind = static_cast<EcnConfig::Kind>(random.below(3)),
                  .when = static_cast<EcnConfig::When>(random.below(2)),
                  .low = random.below(50'000),
                  .high = 50'000 + random.below(50'000),
                  .max_probability = 0.5};
  if (random.chance(0.4)) {
    switches.buffer_bytes = 100'000 + random.below(200'000);
    switches.pfc.enabled = true;
    switches.pfc.alpha = 1.0 / static_cast<double>(1 + random.below(8));
  } else {
    switches.queue_bytes = 8192 << random.below(6);
    switches.buffer_bytes = random.chance(0.5) ? 16'384 << random.below(5) : 0;
    switches.trimming = random.chance(0.5);
    switches.trim_tail_at_random = random.chance(0.5);
  }
  return config;
}

SimFaults random_faults(Prng& random, uint32_t hosts) {
  SimFaults faults;
  if (random.chance(0.3)) return faults;
  faults.loss = random.chance(0.5) ? 0.05 : 0;
  faults.duplication = random.chance(0.5) ? 0.05 : 0;
  faults.reordering = random.chance(0.5) ? 0.1 : 0;
  faults.corruption = random.chance(0.5) ? 0.05 : 0;
  const Instant from = Instant::from_ns(static_cast<int64_t>(random.below(20'000)));
  const SimWindow window{from, from + Duration::from_us(20)};
  if (random.chance(0.3)) faults.partitions.push_back({window, {random.below(hosts)}});
  if (random.chance(0.3)) faults.stalls.push_back({window, random.below(hosts)});
  return faults;
}

void random_event(FabricWorld& world, Prng& random, uint32_t cables) {
  const uint32_t hosts = world.fabric().hosts();
  const auto cable = static_cast<uint32_t>(random.below(cables));
  switch (random.below(12)) {
    case 0: return world.fabric().set_cable_up(cable, false);
    case 1:
    case 2: return world.fabric().set_cable_up(cable, true);
    case 3: return world.fabric().set_cable_rate(cable, random_cable(random).rate);
    case 4: return world.fabric().set_cable_loss(cable, random.chance(0.5) ? 0.1 : 0);
    case 5: return world.fabric().set_faults(random_faults(random, hosts));
    default: {
      const bool control = random.chance(0.2);
      const Letter letter{.to = static_cast<uint32_t>(random.below(hosts)),
                          .payload = random.below(control ? 200 : 4096),
                          .path = static_cast<uint16_t>(random.below(64)),
                          .traffic_class = control ? TrafficClass::kControl : TrafficClass::kData};
      world.send_many(static_cast<uint32_t>(random.below(hosts)), letter,
                      static_cast<uint32_t>(random.below(60)));
    }
  }
}

uint64_t run(uint64_t seed) {
  Prng random(seed);
  const Topology topology = random_topology(random);
  const auto cables = static_cast<uint32_t>(topology.cables.size());
  FabricWorld world(topology, random_config(random), seed);
  for (int step = 0; step < 100; ++step) {
    random_event(world, random, cables);
    world.run_for(Duration::from_ns(static_cast<int64_t>(random.below(2000))));
    RC_ASSERT(world.fabric().counters().conserved());
  }
  for (uint32_t cable = 0; cable < cables; ++cable) world.fabric().set_cable_up(cable, true);
  world.fabric().set_faults({});
  world.run_dry();
  const FabricCounters counters = world.fabric().counters();
  RC_ASSERT(counters.conserved());
  RC_ASSERT(counters.in_flight == 0U);
  RC_ASSERT(counters.delivered == world.arrivals().size());
  for (uint32_t host = 0; host < topology.hosts; ++host) RC_ASSERT(world.unsent(host) == 0U);
  for (uint32_t i = 0; i < topology.switches; ++i) RC_ASSERT(world.fabric().switch_buffer(i) == 0U);
  return world.fabric().trace_hash();
}

RC_GTEST_PROP(Fabric, CountersAccountForEveryPacket, (uint64_t seed)) {
  const uint64_t hash = run(seed);
  RC_ASSERT(run(seed) == hash);
  RC_ASSERT(run(seed + 1) != hash);
}

}  // namespace
}  // namespace pacecar::test::fabric_property
