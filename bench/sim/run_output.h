// A run's result as JSON, whole, and as a summary for people, a few lines of text. In JSON, times
// are in nanoseconds since time 0 (null: not done), sizes in bytes, rates in bits per second: the
// key names the unit. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench/sim/run.h"
#include "bench/sim/run_spec.h"

namespace pacecar {

inline constexpr int kRunSchemaVersion = 1;

// What `make` makes of each.
template <typename List, typename Make>
nlohmann::json json_list(const List& list, Make make) {
  nlohmann::json all = nlohmann::json::array();
  for (const auto& each : list) all.push_back(make(each));
  return all;
}

nlohmann::json to_json(const RunResult& run);
// The part of it that tells two runs apart: "nics" and "fabric" (sums of their counters), "events",
// "complete" and "trace_hash".
nlohmann::json counters_json(const RunResult& run);

std::string summary(const RunResult& run);
// What a run is made of, defaults included, in one line: rates, round trip, queues.
std::string fabric_text(const RunSpec& spec);
// Which flows are not done, the first few by name; empty when all are.
std::string undone_flows(const RunResult& run);

}  // namespace pacecar
