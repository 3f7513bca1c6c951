// The NIC conformance suites over hostile devices (tests/support/hostile_verbs). Each seed gives a
// device with other behavior, the same in each run. HOSTILE_SEEDS=FIRST:COUNT chooses the seeds.
#include <deque>
#include <string>

#include "tests/conformance/nic_conformance.h"
#include "tests/support/draws.h"
#include "tests/support/hostile_nics.h"
#include "tests/support/under_sanitizer.h"

namespace pacecar::nic_hostile_verbs_test {
namespace {

NicWorld make_world(uint64_t seed) {
  const uint32_t paths = seed % 2 == 0 ? 1 : 4;
  const auto nics = std::make_shared<test::HostileNics>(hostile::draw_behavior(seed), 2, paths);
  return {.nics = {&(*nics)[0], &(*nics)[1]},
          .step = [nics] { return nics->step(); },
          .next_deadline = next_deadline_of((*nics)[0], (*nics)[1]),
          .owner = nics};
}

std::vector<NicCase> cases() {
  const auto [first, count] = test::hostile_seeds(test::rounds(test::draws(200)));
  static std::deque<std::string> names;  // NicCase refers to its name
  std::vector<NicCase> all;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    names.push_back("seed_" + std::to_string(seed));
    all.push_back({names.back().c_str(), [seed] { return make_world(seed); }});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Hostile, NicConformance, testing::ValuesIn(cases()), nic_case_name);
INSTANTIATE_TEST_SUITE_P(Hostile, NicReads, testing::ValuesIn(cases()), nic_case_name);

}  // namespace
}  // namespace pacecar::nic_hostile_verbs_test
