#include "net_plugin/predict/max_min.h"

#include <algorithm>
#include <utility>

namespace pacecar::predict {

MaxMin::MaxMin(std::vector<double> capacities)
    : capacities_(std::move(capacities)), links_(capacities_.size()) {}

void MaxMin::add_weights(std::span<const Route> flows) {
  for (const Route& route : flows) {
    for (const Route::Use& use : route.all()) {
      Link& link = links_[use.link];
      if (link.solved != solves_) {
        touched_.push_back(use.link);
        link = {.left = capacities_[use.link], .solved = solves_};
      }
      link.growing += use.limits;
      link.weight += use.load * use.weight;
    }
  }
}

double MaxMin::lowest_level(std::span<const Route> flows) const {
  double lowest = std::numeric_limits<double>::infinity();
  for (const uint32_t touched : touched_) {
    const Link& link = links_[touched];
    if (link.growing > 0) lowest = std::min(lowest, link.left / link.weight);
  }
  for (const uint32_t i : growing_) lowest = std::min(lowest, flows[i].rate_max);
  return lowest;
}

void MaxMin::freeze(const Route& route, double rate) {
  for (const Route::Use& use : route.all()) {
    Link& link = links_[use.link];
    link.left = std::max(link.left - rate * use.load, 0.0);
    link.weight -= use.load * use.weight;
    link.growing -= use.limits;
  }
}

void MaxMin::solve(std::span<const Route> flows, std::span<Allotment> found) {
  touched_.clear();
  ++solves_;
  growing_.resize(flows.size());
  for (uint32_t i = 0; i < flows.size(); ++i) growing_[i] = i;
  add_weights(flows);
  // The tightest links fill first; the rates of their flows are final.
  constexpr double kSlack = 1 + 1e-9;
  while (!growing_.empty()) {
    const double lowest = lowest_level(flows);
    const double full = lowest * kSlack;
    size_t frozen = 0;
    for (const uint32_t i : growing_) {
      found[i] = {flows[i].rate_max <= full ? lowest : -1, kNoLink};
      for (const Route::Use& use : flows[i].all()) {
        const Link& link = links_[use.link];
        if (use.limits && link.left <= full * link.weight)
          found[i] = {lowest * use.weight, use.link};
      }
      if (found[i].rate >= 0) ++frozen;
    }
    if (frozen == 0) break;  // nothing limits the flows that are left
    std::erase_if(growing_, [&](uint32_t i) {
      if (found[i].rate < 0) return false;
      freeze(flows[i], found[i].rate);
      return true;
    });
  }
  for (const uint32_t i : growing_) found[i] = {flows[i].rate_max, kNoLink};
}

}  // namespace pacecar::predict
