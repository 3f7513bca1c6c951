#include "bench/workload/workload_facts.h"

#include <algorithm>
#include <vector>

namespace pacecar {

std::optional<size_t> never_starting_flow(const Workload& workload) {
  std::vector<std::vector<size_t>> waiting(workload.triggers.size());
  std::vector<size_t> started;  // in an order that triggers allow
  for (size_t i = 0; i < workload.flows.size(); ++i) {
    const uint32_t trigger = workload.flows[i].trigger;
    if (trigger == kNoTrigger) {
      started.push_back(i);
    } else {
      waiting[trigger].push_back(i);
    }
  }
  std::vector<uint64_t> firings(workload.triggers.size(), 0);
  const auto fire = [&](uint32_t index) {
    const WorkloadTrigger& trigger = workload.triggers[index];
    const auto& flows = waiting[index];
    const uint64_t number = ++firings[index];
    if (trigger.kind == WorkloadTrigger::Kind::kMultiShot) {
      if (number <= flows.size()) started.push_back(flows[number - 1]);
    } else if (number == (trigger.kind == WorkloadTrigger::Kind::kBarrier ? trigger.count : 1)) {
      started.insert(started.end(), flows.begin(), flows.end());
    }
  };
  std::vector<bool> starts(workload.flows.size(), false);
  for (size_t i = 0; i < started.size(); ++i) {
    starts[started[i]] = true;
    for (const uint32_t trigger : workload.flows[started[i]].on_sent) fire(trigger);
    for (const uint32_t trigger : workload.flows[started[i]].on_received) fire(trigger);
  }
  const auto found = std::find(starts.begin(), starts.end(), false);
  if (found == starts.end()) return {};
  return static_cast<size_t>(found - starts.begin());
}

}  // namespace pacecar
