// Max-min fair rates: no flow can have a higher rate unless another one, whose rate (for its
// weight) is no higher, gets less. Algorithms are compared with them.
//
// Only hosts' links limit flows, each direction separately; the core is taken to be fast enough.
// Progressive filling. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pacecar {

struct MaxMinFlow {
  uint32_t source = 0;       // host
  uint32_t destination = 0;  // host
  double weight = 1;         // more than 0
};

// By flow, in the unit of `capacities`, which are by host and the same in both directions.
std::vector<double> max_min_rates(std::span<const MaxMinFlow> flows,
                                  std::span<const double> capacities);

}  // namespace pacecar
