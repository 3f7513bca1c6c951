// The NIC conformance suite over hostile devices (tests/support/hostile_verbs), of which each seed
// makes another. HOSTILE_SEEDS=FIRST:COUNT chooses others; a seed does the same each time.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/conformance/nic_conformance.h"
#include "tests/support/hostile_verbs/hostile_verbs.h"
#include "transport/verbs/verbs_nic.h"

namespace pacecar {
namespace {

constexpr int kTurnsPerStep = 4;

Instant now() { return Instant::from_ns(hostile::now_ns()); }

std::unique_ptr<VerbsNic> open_nic(uint32_t paths) {
  return VerbsNic::open({.device = "hostile0",
                         .flows = 4,
                         .queue_pairs = 16,
                         .regions = 32,
                         .paths = paths,
                         .silence_limit = Duration::from_ms(300)},
                        now())
      .value();
}

NicWorld make_world(uint64_t seed) {
  hostile::Behavior behavior = hostile::draw_behavior(seed);
  behavior.threaded = false;
  hostile::configure(behavior);
  const uint32_t paths = seed % 2 == 0 ? 1 : 4;
  using Nics = std::array<std::unique_ptr<VerbsNic>, 2>;
  const auto nics = std::make_shared<Nics>(Nics{open_nic(paths), open_nic(paths)});
  return {.nics = {(*nics)[0].get(), (*nics)[1].get()},
          .refusals_break = true,
          .lost_memory_breaks = true,
          .step =
              [nics] {
                for (int turn = 0; turn < kTurnsPerStep; ++turn) hostile::turn();
                for (const auto& nic : *nics) {
                  nic->receive(now());
                  nic->on_time(now());
                  nic->transmit(now());
                }
                return now();
              },
          .owner = nics};
}

std::vector<NicCase> cases() {
  unsigned long first = 1;
  unsigned long count = 200;
  const char* const chosen = std::getenv("HOSTILE_SEEDS");
  if (chosen != nullptr) std::sscanf(chosen, "%lu:%lu", &first, &count);
  std::vector<NicCase> all;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    static std::deque<std::string> names;  // NicCase keeps none
    names.push_back("seed_" + std::to_string(seed));
    all.push_back({names.back().c_str(), [seed] { return make_world(seed); }});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Hostile, NicConformance, testing::ValuesIn(cases()), nic_case_name);

}  // namespace
}  // namespace pacecar
