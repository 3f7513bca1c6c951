// Max-min fair rates by progressive filling: no flow can have a higher rate unless another one,
// whose rate (for its weight) is at most as high, gets less. Hosts' links alone limit flows, each
// direction separately.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

namespace pacecar::test {

struct MaxMinFlow {
  uint32_t source = 0;       // host
  uint32_t destination = 0;  // host
  double weight = 1;         // more than 0
};

// By flow, in the unit of `capacities`, which are by host and the same in both directions.
inline std::vector<double> max_min_rates(std::span<const MaxMinFlow> flows,
                                         std::span<const double> capacities) {
  struct Side {         // one direction of a host's link
    double left = 0;    // of its capacity
    double weight = 0;  // of flows that still grow
    double level() const { return weight > 0 ? left / weight : std::numeric_limits<double>::max(); }
  };
  std::vector<Side> out;
  for (const double capacity : capacities) out.push_back({.left = capacity});
  std::vector<Side> in = out;
  for (const MaxMinFlow& flow : flows) {
    out[flow.source].weight += flow.weight;
    in[flow.destination].weight += flow.weight;
  }
  std::vector<double> rates(flows.size(), 0);
  std::vector<size_t> growing(flows.size());
  std::iota(growing.begin(), growing.end(), size_t{0});
  // The tightest side fills first; its flows are as fast as they can be.
  const auto level = [&](size_t i) {
    return std::min(out[flows[i].source].level(), in[flows[i].destination].level());
  };
  while (!growing.empty()) {
    const double lowest = level(*std::ranges::min_element(growing, {}, level));
    constexpr double kSlack = 1 + 1e-9;
    const auto others = std::partition(growing.begin(), growing.end(),
                                       [&](size_t i) { return level(i) <= lowest * kSlack; });
    for (auto full = growing.begin(); full != others; ++full) {
      const MaxMinFlow& flow = flows[*full];
      rates[*full] = lowest * flow.weight;
      for (Side* side : {&out[flow.source], &in[flow.destination]}) {
        side->left = std::max(side->left - rates[*full], 0.0);
        side->weight -= flow.weight;
      }
    }
    growing.erase(growing.begin(), others);
  }
  return rates;
}

}  // namespace pacecar::test
