// The rates that the flows of a PaceNetwork should get: weighted max-min rates. If
// several flows enter a host, they divide only the fraction `shared` of its incoming link.
#pragma once

#include <vector>

#include "tests/support/max_min.h"

namespace pacecar::test {

// The solver has one host for a host's outgoing link and one for its incoming link.
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

}  // namespace pacecar::test
