// What the flows of a PaceNetwork should get: weighted max-min rates, where a link that several
// flows arrive on is divided up to `shared` of it alone.
#pragma once

#include <vector>

#include "bench/sim/max_min.h"

namespace pacecar::testing {

// A host's outgoing and incoming link are two hosts of the solver.
inline std::vector<double> max_min_reference(std::vector<MaxMinFlow> flows, uint32_t hosts,
                                             double line, double shared) {
  std::vector<double> capacities(2 * hosts, line);
  std::vector<uint32_t> arriving(hosts);
  for (const MaxMinFlow& flow : flows) ++arriving[flow.destination];
  for (uint32_t host = 0; host < hosts; ++host) {
    if (arriving[host] > 1) capacities[hosts + host] = line * shared;
  }
  for (MaxMinFlow& flow : flows) flow.destination += hosts;
  return max_min_rates(flows, capacities);
}

}  // namespace pacecar::testing
