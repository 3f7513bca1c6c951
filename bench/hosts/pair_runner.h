// The order in which pairs of hosts are measured, and their measurement. The receiver is the server
// and the sender the client (with --reversed the other way round); both are runs of agents.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bench/hosts/agent_pool.h"
#include "bench/hosts/matrix.h"
#include "transport/base/units.h"

namespace pacecar::hosts {

// Pairs that are measured at the same time.
using Round = std::vector<Pair>;

// Each pair is in one round; fewer than two hosts have none. `pairs`: "disjoint" (all ordered
// pairs, each host in at most one pair of a round), "all" (all ordered pairs, one in a round), or
// "ring" (each host and the next, both ways; rounds as for "disjoint"). Pure.
std::vector<Round> schedule(size_t hosts, std::string_view pairs);

struct PairPlan {
  std::string test;                                // "bw", "lat"
  std::vector<std::string> flags;                  // of both ends
  std::vector<std::vector<std::string>> of_hosts;  // further flags of each host's end
  uint16_t port = 0;                               // 0: any
  bool reversed = false;
  Duration limit;         // of one measurement, from the client's start
  std::string when_late;  // what to do where that is too short
};

struct Measurement {
  Pair pair;
  nlohmann::json results;             // as --json of the test; null: it failed
  std::string error;                  // why
  std::string missed;                 // why a threshold of the test was missed; empty: none was
  std::vector<std::string> warnings;  // of both ends, each with its host
};

// Measures all pairs of a round at the same time. Calls `on_done` for each pair at its end, unless
// Ctrl-C has ended it, and `on_turn` every kTurn at least.
void measure_round(AgentPool& agents, const PairPlan& plan, const Round& round,
                   const std::function<void(Measurement)>& on_done,
                   const std::function<void()>& on_turn);

}  // namespace pacecar::hosts
