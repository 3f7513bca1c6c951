// The whole result of a run as JSON. Times are in nanoseconds since time 0 (null: not done), sizes
// in bytes, rates in bits per second: the key names the unit. Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "bench/sim/run.h"

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

}  // namespace pacecar
