// Plays a workload without a network, as a model of its triggers. Flows end in random order; each
// is received before its sender is done. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "bench/workload/workload.h"
#include "transport/base/prng.h"

namespace pacecar {

class WorkloadPlayer {
 public:
  using Watch = std::function<void(size_t flow)>;
  Watch on_start = [](size_t) {};
  Watch on_received = [](size_t) {};
  Watch on_sent = [](size_t) {};

  WorkloadPlayer(const Workload& workload, uint64_t seed)
      : workload_(workload), prng_(seed), firings_(workload.triggers.size(), 0) {}

  // Returns the number of flows that have ended.
  size_t play() {
    for (size_t i = 0; i < workload_.flows.size(); ++i) {
      if (workload_.flows[i].trigger == kNoTrigger) start(i);
    }
    size_t ended = 0;
    while (!running_.empty()) {
      std::swap(running_[prng_.below(running_.size())], running_.back());
      auto& [flow, received] = running_.back();
      const size_t index = flow;
      if (!received) {
        received = true;
        on_received(index);
        for (const uint32_t trigger : workload_.flows[index].on_received) fire(trigger);
      } else {
        running_.pop_back();
        ++ended;
        on_sent(index);
        for (const uint32_t trigger : workload_.flows[index].on_sent) fire(trigger);
      }
    }
    return ended;
  }

 private:
  void start(size_t flow) {
    running_.push_back({flow, false});
    on_start(flow);
  }

  void fire(uint32_t index) {
    const WorkloadTrigger& trigger = workload_.triggers[index];
    const uint32_t firing = ++firings_[index];
    uint32_t place = 0;  // of a flow among the flows of the trigger
    for (size_t i = 0; i < workload_.flows.size(); ++i) {
      if (workload_.flows[i].trigger != index) continue;
      ++place;
      switch (trigger.kind) {
        case WorkloadTrigger::Kind::kOneShot:
          if (firing == 1) start(i);
          break;
        case WorkloadTrigger::Kind::kMultiShot:
          if (firing == place) start(i);  // each firing starts the next flow
          break;
        case WorkloadTrigger::Kind::kBarrier:
          if (firing == trigger.count) start(i);
          break;
      }
    }
  }

  const Workload& workload_;
  Prng prng_;
  std::vector<uint32_t> firings_;
  std::vector<std::pair<size_t, bool>> running_;  // flow, whether it was received
};

// The hosts whose data each host has in the end, if every flow carries the data that its sender has
// when the flow starts.
inline std::vector<std::set<uint32_t>> spread_data(const Workload& workload, uint64_t seed) {
  std::vector<std::set<uint32_t>> known(workload.hosts);
  for (uint32_t host = 0; host < workload.hosts; ++host) known[host] = {host};
  std::vector<std::set<uint32_t>> carried(workload.flows.size());
  WorkloadPlayer player(workload, seed);
  player.on_start = [&](size_t i) { carried[i] = known[workload.flows[i].source]; };
  player.on_received = [&](size_t i) {
    known[workload.flows[i].destination].insert(carried[i].begin(), carried[i].end());
  };
  player.play();
  return known;
}

}  // namespace pacecar
