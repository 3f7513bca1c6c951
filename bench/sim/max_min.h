// Max-min fair rates: what no flow can have more of unless another that has less (for its weight)
// gets less still. The reference for what algorithms reach.
//
// Hosts' links alone are counted, each direction by itself; the core between them is taken to have
// room. Progressive filling. Pure.
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

// By flow, in the unit of `capacities`, which are by host, out and in alike.
std::vector<double> max_min_rates(std::span<const MaxMinFlow> flows,
                                  std::span<const double> capacities);

}  // namespace pacecar
