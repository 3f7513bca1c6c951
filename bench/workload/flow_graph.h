// Flows that wait for one another: makes the triggers of a Workload from the flows that must have
// been received, or acknowledged, before a flow starts. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/workload/workload.h"

namespace pacecar {

// The first flow that can never start: its trigger fires too seldom, or waits for the flow itself.
// Nothing when all start. Expects indices of triggers to be in range.
std::optional<size_t> never_starting_flow(const Workload& workload);

// The hosts that take part in a workload, in the order of their roles.
using Hosts = std::span<const uint32_t>;

// The flows, by index, that must be done before a flow starts: received completely, or acknowledged
// completely.
struct After {
  std::vector<uint32_t> received;
  std::vector<uint32_t> sent;

  bool nothing() const { return received.empty() && sent.empty(); }
};

class FlowGraph {
 public:
  explicit FlowGraph(std::string name) { workload_.name = std::move(name); }

  // Returns the flow's index; indexes ascend from 0.
  uint32_t add(uint32_t source, uint32_t destination, Bytes bytes, Duration start = {});
  uint32_t add_after(const After& after, uint32_t source, uint32_t destination, Bytes bytes);
  // `flow` starts its `start` after all of these. Called once per flow.
  void start_after(uint32_t flow, const After& after);

  // A new trigger's index.
  uint32_t add_trigger(WorkloadTrigger trigger);
  WorkloadFlow& flow(uint32_t index) { return workload_.flows[index]; }

  Workload take() { return std::move(workload_); }

 private:
  Workload workload_;
};

}  // namespace pacecar
