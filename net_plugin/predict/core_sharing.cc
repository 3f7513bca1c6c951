#include "net_plugin/predict/core_sharing.h"

#include <algorithm>

#include "transport/base/prng.h"

namespace pacecar::predict {
namespace {

// Of the shares of flows that last many round trips, in the simulator.
constexpr double kSpread = 0.3;
// Of the delay that is tolerated: the queue swings between none and all of it.
constexpr double kMean = 0.5;
// A slow flow tolerates (line rate / rate)^2 / 2 times as much, at most so often
// (cc/pace/core_limit).
constexpr double kMostPatience = 3;

}  // namespace

double uneven_weight(uint32_t flow) {
  constexpr uint64_t kSteps = 1 << 20;
  const double part = static_cast<double>(Prng(flow).below(kSteps)) / kSteps;
  return 1 + kSpread * (2 * part - 1);
}

CoreQueues::CoreQueues(std::span<const Link> links) : links_(links), queues_(links.size()) {
  for (uint32_t i = 0; i < links.size(); ++i) {
    if (in_core(links[i].cause)) core_.push_back(i);
  }
}

void CoreQueues::begin() {
  for (const uint32_t link : core_) queues_[link] = {};
}

void CoreQueues::add(const Flow& flow, const Allotment& share) {
  if (flow.tolerated_s == 0) return;
  const double slowness = flow.route.rate_max / share.rate;
  for (const Route::Use& use : flow.route.all()) {
    if (!use.limits || !in_core(links_[use.link].cause)) continue;
    Queue& queue = queues_[use.link];
    const bool full = share.limit == use.link;
    const double patience = full ? std::clamp(slowness * slowness / 2, 1.0, kMostPatience) : 1;
    queue.used += share.rate * use.load;
    queue.packet_s = flow.packet_s;
    queue.tolerated_s = std::max(queue.tolerated_s, flow.tolerated_s * patience);
    queue.full |= full;
  }
}

// A full link has the queue that its flows tolerate. At another packets wait for those that come at
// the same time: with a load of r for r / 2 (1 - r) packets, as they come at random (M/D/1).
double CoreQueues::delay_s(const Route& route) const {
  double delay = 0;
  for (const Route::Use& use : route.all()) {
    const Queue& queue = queues_[use.link];
    if (!use.limits || queue.used == 0) continue;
    const double standing = kMean * queue.tolerated_s;
    const double left = std::max(links_[use.link].rate - queue.used, 0.0);
    const bool by_chance = !queue.full && queue.packet_s * queue.used < standing * 2 * left;
    delay += by_chance ? queue.packet_s * queue.used / (2 * left) : standing;
  }
  return delay;
}

}  // namespace pacecar::predict
