// Collectives, with every element checked: each operation of NCCL, in a random order, of random
// sizes, among 2 to 8 ranks over 1 to 4 NICs. PLUGIN_TEST_SEED draws another job; without it each
// version of the table has its own.
#include <cstdio>
#include <random>

#include "tests/plugin/operations.h"
#include "tests/plugin/plugin_test.h"

namespace pacecar::test {
namespace {

constexpr size_t kMostElements = 60'000;
constexpr int kRounds = 3;  // of all operations

unsigned seed() {
  const std::string version = setting("PLUGIN_TEST_VERSION", "12");
  return static_cast<unsigned>(std::stoul(setting("PLUGIN_TEST_SEED", version.c_str())));
}

// All ranks draw the same: every magnitude is as likely as another, and so is nothing.
class Draw {
 public:
  Draw(unsigned seed, int ranks)
      : random_(seed * 8 + static_cast<unsigned>(ranks)), ranks_(ranks) {}

  unsigned below(size_t bound) { return static_cast<unsigned>(random_() % bound); }
  Operation operation(uint32_t number) {
    const size_t magnitude = size_t{1} << below(17);
    return {number, std::min<size_t>(below(magnitude), kMostElements),
            static_cast<int>(below(static_cast<size_t>(ranks_)))};
  }
  std::array<OperationKind, kOperations.size()> order() {
    auto kinds = kOperations;
    std::shuffle(kinds.begin(), kinds.end(), random_);
    return kinds;
  }

 private:
  std::mt19937 random_;
  int ranks_;
};

void run_job(Rank& rank, Draw draw, size_t nics) {
  const auto host = start_host(nics);
  Mesh mesh(*host, rank, static_cast<size_t>(rank.size()) * kMostElements);
  uint32_t number = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (const OperationKind& kind : draw.order()) {
      const Operation operation = draw.operation(number++);
      const size_t wrong = kind.run(mesh, operation);
      EXPECT_EQ(wrong, 0U) << kind.name << " of " << operation.count << " elements, root "
                           << operation.root << ", rank " << rank.rank();
    }
  }
  rank.barrier();
}

class Collective : public testing::TestWithParam<int> {};

TEST_P(Collective, EveryOperationOfRandomSizes) {
  const int ranks = GetParam();
  Draw draw(seed(), ranks);
  const size_t nics = 1 + draw.below(nic_count());
  std::printf("%d ranks, %zu NICs, PLUGIN_TEST_SEED=%u\n", ranks, nics, seed());
  expect_processes_pass(ranks, [&](Rank& rank) { run_job(rank, draw, nics); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collective, testing::Range(2, 9));

TEST(CollectiveOfThreads, EveryOperationOfRandomSizes) {
  expect_threads_pass(3, [](Rank& rank) { run_job(rank, Draw(seed(), 3), nic_count()); });
}

}  // namespace
}  // namespace pacecar::test
