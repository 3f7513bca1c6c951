// Many names in few words, as Slurm writes them: "gpu[01-16,20],login1". Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.h"

namespace pacecar::hosts {

inline constexpr size_t kMaxHosts = 4096;

// In their order, repeated names kept. A number has as many digits as the first of its range.
// Errors: kInvalidArgument, without the place where it was written.
Result<std::vector<std::string>> expand_names(std::string_view text);

}  // namespace pacecar::hosts
