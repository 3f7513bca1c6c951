#include "bench/sim/max_min.h"

#include <algorithm>
#include <limits>

namespace pacecar {
namespace {

// One direction of a host's link.
struct Side {
  double left = 0;    // of its capacity
  double weight = 0;  // of flows that still grow

  double level() const { return weight > 0 ? left / weight : std::numeric_limits<double>::max(); }
};

}  // namespace

std::vector<double> max_min_rates(std::span<const MaxMinFlow> flows,
                                  std::span<const double> capacities) {
  std::vector<Side> out(capacities.size());
  std::vector<Side> in(capacities.size());
  for (size_t host = 0; host < capacities.size(); ++host) {
    out[host].left = in[host].left = capacities[host];
  }
  for (const MaxMinFlow& flow : flows) {
    out[flow.source].weight += flow.weight;
    in[flow.destination].weight += flow.weight;
  }
  std::vector<double> rates(flows.size(), 0);
  std::vector<size_t> growing;
  for (size_t i = 0; i < flows.size(); ++i) growing.push_back(i);
  // The tightest side fills first; its flows are as fast as they can be.
  const auto level = [&](size_t i) {
    return std::min(out[flows[i].source].level(), in[flows[i].destination].level());
  };
  while (!growing.empty()) {
    const double lowest = level(*std::ranges::min_element(growing, {}, level));
    std::vector<size_t> full;
    std::vector<size_t> others;
    constexpr double kSlack = 1 + 1e-9;
    for (const size_t i : growing) (level(i) <= lowest * kSlack ? full : others).push_back(i);
    for (const size_t i : full) {
      const MaxMinFlow& flow = flows[i];
      rates[i] = lowest * flow.weight;
      for (Side* side : {&out[flow.source], &in[flow.destination]}) {
        side->left = std::max(side->left - rates[i], 0.0);
        side->weight -= flow.weight;
      }
    }
    growing = std::move(others);
  }
  return rates;
}

}  // namespace pacecar
