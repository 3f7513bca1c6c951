// Policers: how much passes at once and in the long run; the rest is dropped.
#include <gmock/gmock.h>

#include "tests/support/fabric_world.h"
#include "transport/base/prng.h"
#include "transport/sim/serial_clock.h"

namespace pacecar::test::policer_test {
namespace {

constexpr Bytes kPacket = 1500;

Instant at_ns(int64_t ns) { return Instant::from_ns(ns); }

TEST(Policer, PassesOneBurstAtOnce) {
  Policer policer(Rate::from_gbps(7), 10 * kPacket);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(policer.passes(kPacket, at_ns(1000))) << i;
  EXPECT_FALSE(policer.passes(kPacket, at_ns(1000)));
  EXPECT_FALSE(policer.passes(1, at_ns(1000)));
  // After a long time one more burst passes.
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(policer.passes(kPacket, at_ns(1'000'000'000))) << i;
  EXPECT_FALSE(policer.passes(kPacket, at_ns(1'000'000'000)));
}

TEST(Policer, DroppedPacketsUseNoTokens) {
  Policer policer(Rate::from_gbps(8), kPacket);  // one byte per nanosecond
  EXPECT_TRUE(policer.passes(kPacket, at_ns(0)));
  for (int64_t ns = 0; ns < 1500; ++ns) ASSERT_FALSE(policer.passes(kPacket, at_ns(ns)));
  EXPECT_TRUE(policer.passes(kPacket, at_ns(1500)));
}

class PolicerRate : public testing::TestWithParam<uint64_t> {};

// Always offered more than its rate, the policer passes exactly its rate: to the packet in a
// second.
TEST_P(PolicerRate, PassedRateIsExactInTheLongRun) {
  const Rate rate = Rate::from_bps(GetParam());
  const Bytes burst = 20'000;
  Policer policer(rate, burst);
  Prng random(1);
  Bytes passed = 0;
  int64_t ns = 0;
  for (; ns < 1'000'000'000; ns += static_cast<int64_t>(random.below(200))) {
    const Bytes size = 64 + random.below(kPacket);
    if (policer.passes(size, at_ns(ns))) passed += size;
  }
  const auto most = rate.bytes_in(Duration::from_ns(ns)) + burst;
  EXPECT_LE(passed, most + 1);
  EXPECT_GE(passed, most - 2 * kPacket);
}

INSTANTIATE_TEST_SUITE_P(Rates, PolicerRate,
                         testing::Values(1'000'000'007, 3'333'333'333, 25'000'000'000));

TEST(FabricPolicer, DropsOnlyAtItsLink) {
  FabricConfig config = default_fabric();
  config.hosts.inbox_bytes = 64 << 20;
  const Bytes packet = FabricWorld::datagram(1000) + config.hosts.overhead_bytes;
  // The link from host 0 to the switch passes a tenth of its 100 Gb/s.
  config.policers = {{.link = 0, .rate = Rate::from_gbps(10), .burst = 20 * packet}};
  FabricWorld world(star(3), config);
  ASSERT_EQ(world.link(0, 3), 0U);
  world.send_many(0, {.to = 2, .number = 0, .payload = 1000}, 1000);
  world.send_many(1, {.to = 2, .number = 10'000, .payload = 1000}, 1000);
  world.run_dry();
  const FabricCounters counters = world.fabric().counters();
  EXPECT_TRUE(counters.conserved());
  EXPECT_EQ(counters.all_dropped(), counters.dropped_for(FabricDrop::kPolicer));
  uint64_t first = 0;
  for (const Arrival& arrival : world.arrivals()) first += arrival.number < 10'000 ? 1 : 0;
  EXPECT_EQ(world.arrivals().size() - first, 1000U);  // packets of host 1
  // The burst, and a tenth of the packets: the tokens that were added meanwhile.
  EXPECT_NEAR(static_cast<double>(first), 20 + 100, 2);
  EXPECT_EQ(first + counters.dropped_for(FabricDrop::kPolicer), 1000U);
  EXPECT_EQ(world.fabric().link_stats(0).dropped, counters.dropped_for(FabricDrop::kPolicer));
}

TEST(FabricPolicer, InvalidPolicerIsRefused) {
  const auto refused = [](const PolicerConfig& policer) {
    EventLoop loop;
    FabricConfig config = default_fabric();
    config.policers = {policer};
    const auto made = Fabric::create(loop, star(2), config, 1);
    return made ? std::string() : made.error().message;
  };
  const Rate rate = Rate::from_gbps(1);
  EXPECT_EQ(refused({.link = 3, .rate = rate, .burst = 10'000}), "");
  EXPECT_THAT(refused({.link = 4, .rate = rate, .burst = 10'000}),
              testing::HasSubstr("there is no link 4"));
  EXPECT_THAT(refused({.link = 0, .rate = rate, .burst = 100}),
              testing::HasSubstr("holds the largest packet"));
  EXPECT_THAT(refused({.link = 0, .rate = Rate(), .burst = 10'000}),
              testing::HasSubstr("has a rate of 0 b/s"));
}

}  // namespace
}  // namespace pacecar::test::policer_test
