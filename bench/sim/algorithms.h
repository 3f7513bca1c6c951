// Which congestion control and which allocator each host of a run has: its own jobs', or the
// experiment's.
#pragma once

#include <string>
#include <vector>

#include "bench/sim/run_spec.h"
#include "transport/base/result.h"

namespace pacecar {

struct Algorithms {
  std::vector<std::string> controls;    // by host, as a sender; empty: sends nothing
  std::vector<std::string> allocators;  // by host, as a receiver; likewise
};

// Errors: kInvalidArgument when jobs want two of a kind at one host, or one that is not known.
Result<Algorithms> algorithms_of(const RunSpec& spec);

}  // namespace pacecar
