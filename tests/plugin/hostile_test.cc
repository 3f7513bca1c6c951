// Collectives over RDMA devices that do everything a real one may do. A seed draws the devices'
// behaviour, the version of the plugin's table, the ranks and the operations; in about half of the
// jobs, queue pairs fail at random. HOSTILE_SEEDS=FIRST:COUNT chooses other seeds.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "tests/plugin/collective_job.h"
#include "tests/support/draws.h"
#include "tests/support/hostile_seeds.h"
#include "tests/support/hostile_verbs/hostile_verbs.h"
#include "transport/base/prng.h"

namespace pacecar::test::hostile_test {
namespace {

// Here the devices run in threads, whose ticks are longer: the delays have fewer ticks.
hostile::Behavior behavior_of(uint64_t seed) {
  constexpr uint32_t kMostTicks = 50;
  hostile::Behavior behavior = hostile::draw_behavior(seed);
  behavior.late_receives = std::min(behavior.late_receives, kMostTicks);
  behavior.late_completions = std::min(behavior.late_completions, kMostTicks);
  behavior.late_last_receive = {};
  return behavior;
}

void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

struct Job {
  explicit Job(uint64_t number) : seed(number), behavior(behavior_of(number)) {
    Prng random(seed);
    ranks = 2 + static_cast<int>(random.below(7));
    version = static_cast<int>(6 + seed % 7);
    behavior.devices = 1 + static_cast<uint32_t>(random.below(2));
    failures = random.below(2) == 0;
  }

  // Runs in a rank's process.
  void run(Rank& rank) const {
    hostile::configure(behavior);
    set("PLUGIN_TEST_VERSION", std::to_string(version));
    set("PLUGIN_TEST_NICS", behavior.devices == 1 ? "hostile0" : "hostile0,hostile1");
    set("PACECAR_PKEY", std::to_string(behavior.pkey_table - 1));
    Prng random(seed + static_cast<uint64_t>(rank.rank()));
    run_collectives(rank, Draw(static_cast<unsigned>(seed), ranks), behavior.devices, 1,
                    [&](uint32_t) {
                      if (!failures || random.below(8) > 0) return;
                      const auto device = static_cast<uint32_t>(random.below(behavior.devices));
                      hostile::raise(device, IBV_EVENT_QP_FATAL);
                    });
  }

  const uint64_t seed;
  hostile::Behavior behavior;
  int ranks = 0;
  int version = 0;
  bool failures = false;
};

TEST(HostileCollectives, EveryOperationOfRandomSizes) {
  const auto [first, count] = hostile_seeds(tests_all() ? 7 : 2);
  for (uint64_t seed = first; seed < first + count && !testing::Test::HasFailure(); ++seed) {
    const Job job(seed);
    set("HOSTILE_VERBS_WORLD", std::to_string(getpid()) + "-" + std::to_string(seed));
    SCOPED_TRACE(std::to_string(job.ranks) + " ranks, table v" + std::to_string(job.version) +
                 ": HOSTILE_SEEDS=" + std::to_string(seed) + ":1");
    expect_processes_pass(job.ranks, [&](Rank& rank) { job.run(rank); });
  }
}

}  // namespace
}  // namespace pacecar::test::hostile_test
