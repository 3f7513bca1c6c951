// Processes of a host divide a link (transport/share): every interleaving with a few interruptions,
// stops and deaths, and random ones with many.
//
// PACECAR_MODEL_FAULTS is how many a run of the fixed worlds has at most (1; 2 take an hour),
// PACECAR_MODEL_SEEDS how many worlds are drawn (2000 with TESTS_ALL=1, else 250),
// PACECAR_MODEL_SEED the seed of the first world.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/model/share_world.h"
#include "tests/support/draws.h"

namespace pacecar::model::share_model_test {
namespace {

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class ShareModel : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the thread sanitizer does not know fibers";
#endif
  }

  std::string run(const ShareScenario& scenario, Chooser& chooser) {
    ShareWorld world(scenario, chooser);
    const std::string failure = world.run();
    ++runs_;
    polls_ += world.polls();
    stops_ += world.stops();
    deaths_ += world.deaths();
    return failure;
  }
  void print(const std::string& name) const {
    std::printf("%s: %lu runs, %lu polls, %lu stops, %lu deaths\n", name.c_str(), runs_, polls_,
                stops_, deaths_);
    std::fflush(stdout);
  }

  uint64_t runs_ = 0;
  uint64_t polls_ = 0;
  uint64_t stops_ = 0;
  uint64_t deaths_ = 0;
};

TEST_F(ShareModel, PropertiesHoldWithEveryInterruptionStopAndDeath) {
  const auto faults = static_cast<uint32_t>(from_environment("PACECAR_MODEL_FAULTS", 1));
  for (const ShareScenario& scenario : share_scenarios()) {
    EveryChoice chooser(faults);
    do {
      const std::string failure = run(scenario, chooser);
      ASSERT_EQ(failure, "") << scenario.name << ", run " << runs_;
    } while (chooser.next());
    print(scenario.name);
  }
}

TEST_F(ShareModel, PropertiesHoldInRandomWorlds) {
  const uint64_t first = from_environment("PACECAR_MODEL_SEED", 1);
  const uint64_t seeds = from_environment("PACECAR_MODEL_SEEDS", test::draws(2000));
  constexpr std::array<double, 4> kProbabilities = {0.01, 0.05, 0.2, 0.5};
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    SeededChoice chooser(seed, kProbabilities[seed % kProbabilities.size()]);
    const ShareScenario scenario = wild_share_scenario(chooser);
    ASSERT_EQ(run(scenario, chooser), "") << "seed " << seed;
  }
  print("wild");
}

}  // namespace
}  // namespace pacecar::model::share_model_test
