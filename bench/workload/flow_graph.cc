#include "bench/workload/flow_graph.h"

namespace pacecar {

uint32_t FlowGraph::add(uint32_t source, uint32_t destination, Bytes bytes, Duration start) {
  const auto index = static_cast<uint32_t>(workload_.flows.size());
  workload_.flows.push_back(
      {.source = source, .destination = destination, .bytes = bytes, .start = start, .id = index});
  return index;
}

uint32_t FlowGraph::add_after(const After& after, uint32_t source, uint32_t destination,
                              Bytes bytes) {
  const uint32_t index = add(source, destination, bytes);
  start_after(index, after);
  return index;
}

void FlowGraph::start_after(uint32_t flow, const After& after) {
  if (after.nothing()) return;
  const auto events = static_cast<uint32_t>(after.received.size() + after.sent.size());
  const uint32_t trigger = add_trigger(
      {.kind = events == 1 ? WorkloadTrigger::Kind::kOneShot : WorkloadTrigger::Kind::kBarrier,
       .count = events});
  workload_.flows[flow].trigger = trigger;
  for (const uint32_t other : after.received) {
    workload_.flows[other].on_received.push_back(trigger);
  }
  for (const uint32_t other : after.sent) workload_.flows[other].on_sent.push_back(trigger);
}

uint32_t FlowGraph::add_trigger(WorkloadTrigger trigger) {
  workload_.triggers.push_back(trigger);
  return static_cast<uint32_t>(workload_.triggers.size() - 1);
}

}  // namespace pacecar
