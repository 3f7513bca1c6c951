#include "bench/workload/workload.h"

#include <algorithm>

namespace pacecar {

void shift_triggers(WorkloadFlow& flow, uint32_t by) {
  if (flow.trigger != kNoTrigger) flow.trigger += by;
  for (uint32_t& trigger : flow.on_sent) trigger += by;
  for (uint32_t& trigger : flow.on_received) trigger += by;
}

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

uint32_t FlowGraph::add(uint32_t source, uint32_t destination, Bytes bytes, Duration start) {
  const auto index = static_cast<uint32_t>(workload_.flows.size());
  workload_.flows.push_back(
      {.source = source, .destination = destination, .bytes = bytes, .start = start, .id = index});
  return index;
}

void FlowGraph::start_after(uint32_t flow, const After& after) {
  const auto events = static_cast<uint32_t>(after.received.size() + after.sent.size());
  if (events == 0) return;
  const uint32_t trigger = add_trigger(
      {.kind = events == 1 ? WorkloadTrigger::Kind::kOneShot : WorkloadTrigger::Kind::kBarrier,
       .count = events});
  auto& flows = workload_.flows;
  flows[flow].trigger = trigger;
  for (const uint32_t other : after.received) flows[other].on_received.push_back(trigger);
  for (const uint32_t other : after.sent) flows[other].on_sent.push_back(trigger);
}

uint32_t FlowGraph::add_trigger(WorkloadTrigger trigger) {
  workload_.triggers.push_back(trigger);
  return static_cast<uint32_t>(workload_.triggers.size() - 1);
}

}  // namespace pacecar
