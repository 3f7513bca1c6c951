// A run in some lines for people. Pure.
#pragma once

#include <string>

#include "bench/sim/run_result.h"

namespace pacecar {

std::string summary(const RunResult& run);
// Which flows are not done, the first few by name; empty when all are.
std::string undone_flows(const RunResult& run);

}  // namespace pacecar
