// Max-min fair rates of flows over links, by progressive filling: no flow can have more unless a
// flow with no more than it gets less. Rates in bytes per second. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace pacecar::predict {

inline constexpr uint32_t kNoLink = ~0U;

// The links of a flow. It takes its rate times `load` of each, so that one flow can represent many
// equal ones.
struct Route {
  struct Use {
    uint32_t link = kNoLink;
    float load = 1;
    float weight = 1;    // of its share of the link, relative to other flows
    bool limits = true;  // the flow when the link is full; false for acknowledgements
  };
  std::array<Use, 8> uses;
  uint32_t count = 0;
  double rate_max = std::numeric_limits<double>::infinity();

  void add(uint32_t link, double load = 1) { uses[count++] = {link, static_cast<float>(load)}; }
  void add_acks(uint32_t link, double load) {
    uses[count++] = {.link = link, .load = static_cast<float>(load), .limits = false};
  }
  std::span<const Use> all() const { return {uses.data(), count}; }
};

struct Allotment {
  double rate = 0;
  uint32_t limit = kNoLink;  // the full link that limits it; kNoLink: its `rate_max` does
};

// Keeps its memory from one call to the next.
class MaxMin {
 public:
  explicit MaxMin(std::vector<double> capacities);

  // Fills `found` by flow. A flow without links has its `rate_max`.
  void solve(std::span<const Route> flows, std::span<Allotment> found);

 private:
  struct Link {
    double left = 0;       // of its capacity
    double weight = 0;     // sum of the weighted loads of flows that still grow
    uint32_t growing = 0;  // flows that it limits
    uint32_t solved = 0;   // the last solve() that used it
  };
  void add_weights(std::span<const Route> flows);
  double lowest_level(std::span<const Route> flows) const;
  void freeze(const Route& route, double rate);

  std::vector<double> capacities_;
  std::vector<Link> links_;
  std::vector<uint32_t> touched_;
  std::vector<uint32_t> growing_;
  uint32_t solves_ = 0;
};

}  // namespace pacecar::predict
