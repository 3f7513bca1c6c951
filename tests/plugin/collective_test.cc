// Collectives among 2 to 8 ranks over 1 to 4 NICs. PLUGIN_TEST_SEED draws another job; without it
// each version of the table has its own.
#include <cstdio>

#include "tests/plugin/collective_job.h"

namespace pacecar::test::collective_test {
namespace {

constexpr int kRounds = 3;  // of all operations

unsigned seed() {
  const std::string version = setting("PLUGIN_TEST_VERSION", "12");
  return static_cast<unsigned>(std::stoul(setting("PLUGIN_TEST_SEED", version.c_str())));
}

class Collective : public testing::TestWithParam<int> {};

TEST_P(Collective, EveryOperationOfRandomSizes) {
  const int ranks = GetParam();
  Draw draw(seed(), ranks);
  const size_t nics = 1 + draw.below(nic_count());
  std::printf("%d ranks, %zu NICs, PLUGIN_TEST_SEED=%u\n", ranks, nics, seed());
  expect_processes_pass(ranks, [&](Rank& rank) { run_collectives(rank, draw, nics, kRounds); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collective, testing::Range(2, 9));

TEST(CollectiveOfThreads, EveryOperationOfRandomSizes) {
  const Draw draw(seed(), 3);
  const size_t nics = nic_count();
  expect_threads_pass(3, [&](Rank& rank) { run_collectives(rank, draw, nics, kRounds); });
}

}  // namespace
}  // namespace pacecar::test::collective_test
