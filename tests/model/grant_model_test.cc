// The grant protocol of `pace` in small worlds, with every sequence of a few faults of its control
// words, and with many faults from a seed.
//
// PACECAR_MODEL_FAULTS is how many faults a run of the fixed worlds has at most (1),
// PACECAR_MODEL_SEEDS how many worlds are drawn (2000 with TESTS_ALL=1, else 250),
// PACECAR_MODEL_SEED the seed of the first world.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/model/scenario.h"
#include "tests/model/world.h"
#include "tests/support/draws.h"

namespace pacecar::model::grant_model_test {
namespace {

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// The figures of many runs.
class Tally {
 public:
  void add(const Result& result) {
    ++runs_;
    total_.add(result);
  }
  uint64_t runs() const { return runs_; }
  const Result& total() const { return total_; }
  void print(const std::string& name) const {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
    std::printf(
        "%s: %lu runs, %ld steps, %lu words, %lu faults, %.1f s; longest excess %ld steps, largest "
        "%.2f of the link, largest queue %.2f BDP; longest below a quarter of the fair share %ld "
        "steps; longest rest %ld steps; V %.0f us\n",
        name.c_str(), runs_, total_.steps, total_.words, total_.faults, took.count(),
        total_.longest_excess, total_.largest_excess,
        static_cast<double>(total_.largest_queue) / static_cast<double>(kBdp), total_.longest_low,
        total_.longest_rest, total_.validity.us());
    std::fflush(stdout);  // what follows may take an hour
  }

 private:
  uint64_t runs_ = 0;
  Result total_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The end of the trace shows what led to a failure.
std::string last_part(const std::string& trace) {
  constexpr size_t kShown = 10000;
  return trace.size() <= kShown ? trace : trace.substr(trace.size() - kShown);
}

// Empty when all properties hold, else the trace of the run.
template <typename MakeScenario>
std::string run_once(Chooser& chooser, MakeScenario make, Tally& tally) {
  const Scenario scenario = make(chooser);
  const Result result = World(scenario, chooser, /*trace=*/false).run();
  tally.add(result);
  if (result.failure.empty()) return "";
  chooser.rewind();
  const Scenario again = make(chooser);
  World world(again, chooser, /*trace=*/true);
  world.run();
  return last_part(world.trace());
}

template <typename MakeScenario>
void run_every(uint32_t faults, MakeScenario make, const std::string& name) {
  EveryChoice chooser(faults);
  Tally tally;
  do {
    const std::string failure = run_once(chooser, make, tally);
    ASSERT_TRUE(failure.empty()) << failure << "\nin run " << tally.runs();
  } while (chooser.next());
  tally.print(name);
}

TEST(GrantModel, PropertiesHoldInEveryShapeWithoutFaults) {
  for (const auto& [senders, receivers] :
       {std::pair{1U, 1U}, {2U, 1U}, {1U, 2U}, {3U, 1U}, {2U, 2U}}) {
    run_every(
        0, [&](Chooser& c) { return shaped_scenario(senders, receivers, c); },
        fmt::format("{} to {}", senders, receivers));
  }
}

TEST(GrantModel, PropertiesHoldWithEveryFaultInEveryPlace) {
  const auto faults = static_cast<uint32_t>(number_from_environment("PACECAR_MODEL_FAULTS", 1));
  for (const Scenario& scenario : fixed_scenarios()) {
    run_every(
        faults, [&](Chooser&) { return scenario; }, scenario.name);
  }
}

TEST(GrantModel, PropertiesHoldInEveryShapeWithAFault) {
  run_every(
      1, [](Chooser& c) { return shaped_scenario(2, 1, c); }, "2 to 1, a fault");
}

// Runs every fixed world once per step at which the silence may begin.
void run_silent(Scenario silence, const std::string& name) {
  Tally tally;
  for (Scenario scenario : fixed_scenarios()) {
    for (int64_t from = 0; from < 60; ++from) {
      scenario.silent_from = from;
      scenario.silent_until = from + silence.silent_until;
      scenario.data_too = silence.data_too;
      EveryChoice chooser(0);
      const std::string failure = run_once(
          chooser, [&](Chooser&) { return scenario; }, tally);
      ASSERT_TRUE(failure.empty()) << failure << "\nsilent from step " << from;
    }
  }
  tally.print(name);
}

TEST(GrantModel, ASenderWithoutWordsAndAcknowledgementsSlowsDown) {
  run_silent({.silent_until = 4 * kValiditySteps, .data_too = true},
             "no words, no acknowledgements");
}

TEST(GrantModel, ASenderWithAcknowledgementsButNoWordsDropsItsGrant) {
  run_silent({.silent_until = 20 * kValiditySteps}, "no words");
}

TEST(GrantModel, ASenderThatDiesLeavesItsShareToOthers) {
  Tally tally;
  for (const uint32_t dead : {0U, 1U}) {
    for (int64_t step = 0; step < 60; ++step) {
      Scenario scenario{"a sender dies", 2, 1, {{0, 0, 60 * kBdp, 0, 4}, {1, 0, 60 * kBdp, 0, 8}}};
      scenario.dies = step;
      scenario.dead = dead;
      EveryChoice chooser(0);
      const std::string failure = run_once(
          chooser, [&](Chooser&) { return scenario; }, tally);
      ASSERT_TRUE(failure.empty()) << failure << "\nsender " << dead << " dies in step " << step;
    }
  }
  tally.print("a sender dies");
}

TEST(GrantModel, PropertiesHoldWithManyRandomFaults) {
  const uint64_t first = number_from_environment("PACECAR_MODEL_SEED", 1);
  const uint64_t seeds = number_from_environment("PACECAR_MODEL_SEEDS", test::draws(2000));
  Tally tally;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    SeededChoice chooser(seed, seed % 4 * 0.125);
    const std::string failure = run_once(chooser, wild_scenario, tally);
    ASSERT_TRUE(failure.empty()) << failure << "\nwith PACECAR_MODEL_SEED=" << seed;
  }
  tally.print("many faults");
}

}  // namespace
}  // namespace pacecar::model::grant_model_test
