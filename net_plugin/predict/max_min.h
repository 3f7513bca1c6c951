// Max-min fair rates over links: no flow can have more unless another that has less gets less
// still. Progressive filling. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace pacecar::predict {

inline constexpr uint32_t kNoLink = ~0U;

// A flow on its links: of each it takes its rate times `load`, so that one flow can stand for many
// that are alike.
struct Route {
  struct Use {
    uint32_t link = kNoLink;
    float load = 1;
    float weight = 1;    // of its share of the link beside those of others
    bool limits = true;  // when the link is full; acknowledgements go before data
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
  uint32_t limit = kNoLink;  // the link that allows no more; none: its own `rate_max`
};

// Keeps its memory from one call to the next.
class MaxMin {
 public:
  explicit MaxMin(std::vector<double> capacities);

  // By flow. A flow without links has its `rate_max`.
  void solve(std::span<const Route> flows, std::span<Allotment> found);
  // Of the link, by all flows of the last solve(); 0 for one that none of them used.
  double used(uint32_t link) const;

 private:
  struct Link {
    double left = 0;    // of its capacity
    double weight = 0;  // loads of the flows that still grow
    uint32_t growing = 0;
    uint32_t solved = 0;  // the last solve() that it was in
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
