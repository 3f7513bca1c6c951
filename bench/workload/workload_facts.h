// What can be told of a workload without running it.
#pragma once

#include <cstddef>
#include <optional>

#include "bench/workload/workload.h"

namespace pacecar {

// The first flow that starts in no run: its trigger fires too seldom, or waits for the flow itself.
// Nothing when all start. Expects indexes of triggers to be in range.
std::optional<size_t> never_starting_flow(const Workload& workload);

}  // namespace pacecar
