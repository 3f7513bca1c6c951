// Which congestion control, weight and allocator each host of a run has: those of its jobs, or else
// the experiment's. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/sim/run_spec.h"
#include "transport/base/result.h"

namespace pacecar {

struct Algorithms {
  std::vector<std::string> controls;    // by host, as a sender
  std::vector<uint32_t> weights;        // by host, as a sender
  std::vector<std::string> allocators;  // by host, as a receiver; empty: that of its own control
};

// A host that receives under several algorithms has the allocator of those that take grants; the
// others are granted the line rate. Errors: kInvalidArgument if the jobs of a host need two
// different ones, or for an unknown algorithm.
Result<Algorithms> algorithms_of(const RunSpec& spec);

}  // namespace pacecar
