// A run as JSON, everything of it. Times are in nanoseconds from the begin of the run (null: not
// done), sizes in bytes, rates in bits per second: the key has the unit.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "bench/sim/run_result.h"

namespace pacecar {

inline constexpr int kRunSchemaVersion = 1;

nlohmann::json to_json(const RunResult& run);

}  // namespace pacecar
