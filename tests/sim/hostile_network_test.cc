// The whole stack against a hostile network, once per seed: 5% loss, duplication, reordering and
// corruption at once, sometimes a partition or a stalled host.
//
// PACECAR_SIM_SEEDS is how many seeds to run (200), PACECAR_SIM_SEED the first one.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/sim/traffic.h"

namespace pacecar::test {
namespace {

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(HostileNetwork, EveryMessageArrivesExactlyOnce) {
  const uint64_t first = number_from_environment("PACECAR_SIM_SEED", 1);
  const uint64_t seeds = number_from_environment("PACECAR_SIM_SEEDS", 200);
  uint64_t messages = 0;
  uint64_t retransmissions = 0;
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const TrafficResult result = Traffic(seed).run();
    messages += result.messages;
    retransmissions += result.retransmissions;
    ASSERT_EQ(result.failure, "") << "replay with PACECAR_SIM_SEED=" << seed
                                  << " PACECAR_SIM_SEEDS=1 hostile_network_test "
                                     "--gtest_filter=HostileNetwork.EveryMessageArrivesExactlyOnce";
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  std::printf("%lu seeds, %lu messages, %lu retransmissions, %.2f ms per seed\n", seeds, messages,
              retransmissions, took.count() / static_cast<double>(seeds));
  EXPECT_GT(retransmissions, seeds);  // the network was hostile indeed
}

TEST(HostileNetwork, TheSameSeedGivesTheSameRun) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const TrafficResult once = Traffic(seed).run();
    const TrafficResult again = Traffic(seed).run();
    EXPECT_EQ(once.trace_hash, again.trace_hash) << "seed " << seed;
    EXPECT_EQ(once.virtual_time, again.virtual_time) << "seed " << seed;
    EXPECT_NE(once.trace_hash, Traffic(seed + 1000).run().trace_hash) << "seed " << seed;
  }
}

}  // namespace
}  // namespace pacecar::test
