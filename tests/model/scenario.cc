#include "tests/model/scenario.h"

#include <algorithm>
#include <array>

namespace pacecar::model {

std::vector<Scenario> fixed_scenarios() {
  constexpr int64_t kRtt = kStepsPerRoundTrip;
  return {
      {"one sender, a message", 1, 1, {{0, 0, 10 * kBdp, 0, 4}}},
      {"one sender, messages with pauses",
       1,
       1,
       {{0, 0, 2 * kBdp, 0, 4}, {0, 0, 3 * kBdp, 2, 24}, {0, 0, 2 * kBdp, 30, 44}}},
      {"two senders at once", 2, 1, {{0, 0, 12 * kBdp, 0, 4}, {1, 0, 12 * kBdp, 0, 4}}},
      {"a second sender joins", 2, 1, {{0, 0, 14 * kBdp, 0, 4}, {1, 0, 10 * kBdp, 0, 24}}},
      {"a short one joins a long one", 2, 1, {{0, 0, 14 * kBdp, 0, 4}, {1, 0, kBdp, 20, 24}}},
      {"a long one outlives a short one", 2, 1, {{0, 0, 60 * kBdp, 0, 4}, {1, 0, 2 * kBdp, 0, 8}}},
      {"three short messages at once",
       3,
       1,
       {{0, 0, 3 * kBdp, 0, 4}, {1, 0, 3 * kBdp, 0, 4}, {2, 0, 3 * kBdp, 0, 4}}},
      {"three senders, one after another",
       3,
       1,
       {{0, 0, 9 * kBdp, 0, 4}, {1, 0, 9 * kBdp, 0, 4 + kRtt}, {2, 0, 9 * kBdp, 0, 4 + 3 * kRtt}}},
      {"one sender, two receivers", 1, 2, {{0, 0, 8 * kBdp, 0, 4}, {0, 1, 8 * kBdp, 0, 12}}},
      {"two by two, crossed",
       2,
       2,
       {{0, 0, 6 * kBdp, 0, 4},
        {0, 1, 6 * kBdp, 0, 4},
        {1, 0, 6 * kBdp, 0, 4},
        {1, 1, 6 * kBdp, 0, 4}}},
      {"a chain", 2, 2, {{0, 0, 8 * kBdp, 0, 4}, {1, 0, 8 * kBdp, 0, 8}, {1, 1, 8 * kBdp, 0, 16}}},
      {"taking turns",
       2,
       1,
       {{0, 0, 3 * kBdp, 0, 4},
        {1, 0, 3 * kBdp, 0, 8},
        {0, 0, 3 * kBdp, 0, 24},
        {1, 0, 3 * kBdp, 0, 28}}},
  };
}

Scenario shaped_scenario(uint32_t senders, uint32_t receivers, Chooser& chooser) {
  // A few round trips, too little for a demand, many round trips, and one.
  constexpr std::array<Bytes, 4> kSizes{4 * kBdp, kBdp / 4, 12 * kBdp, kBdp};
  constexpr std::array<int64_t, 4> kDelays{0, 6, 2, 20};
  const bool many = senders * receivers > 3;
  Scenario scenario{.name = "shaped", .senders = senders, .receivers = receivers};
  for (uint32_t sender = 0; sender < senders; ++sender) {
    for (uint32_t receiver = 0; receiver < receivers; ++receiver) {
      const Bytes bytes = kSizes[chooser.choose(many ? 3 : 4)];
      const int64_t delay = kDelays[chooser.choose(many ? 2 : 4)];
      scenario.messages.push_back({sender, receiver, bytes, 0, kStepsPerRoundTrip + delay});
    }
  }
  return scenario;
}

Scenario wild_scenario(Chooser& chooser) {
  constexpr std::array<std::array<uint32_t, 2>, 5> kHosts{{{1, 1}, {2, 1}, {3, 1}, {2, 2}, {1, 3}}};
  const auto hosts = kHosts[chooser.choose(kHosts.size())];
  Scenario scenario{.name = "wild",
                    .senders = hosts[0],
                    .receivers = hosts[1],
                    .faults_until = 200,
                    .longest_surprise = kValiditySteps,
                    .longest_excess = 2 * kValiditySteps + 3 * kStepsPerRoundTrip};
  for (uint32_t sender = 0; sender < hosts[0]; ++sender) {
    for (uint32_t receiver = 0; receiver < hosts[1]; ++receiver) {
      int64_t ready = 0;
      const uint32_t messages = 1 + chooser.choose(4);
      for (uint32_t i = 0; i < messages; ++i) {
        const Bytes bytes = kBdp / 16 * (1 + chooser.choose(chooser.choose(2) == 0 ? 16 : 200));
        const int64_t posted = ready;
        ready += chooser.choose(chooser.choose(2) == 0 ? 8 : 60);
        const int64_t lead = static_cast<int64_t>(chooser.choose(20));
        scenario.messages.push_back(
            {sender, receiver, bytes, std::max<int64_t>(posted, ready - lead), ready});
      }
    }
  }
  return scenario;
}

}  // namespace pacecar::model
