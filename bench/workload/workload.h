// The messages between the hosts of an experiment: flows, and their start conditions. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/units.h"

namespace pacecar {

inline constexpr uint32_t kNoTrigger = ~0U;

// One message from one host to another. If hosts have several processes, these are the numbers of
// processes (transport/sim/topology.h).
struct WorkloadFlow {
  uint32_t source = 0;
  uint32_t destination = 0;
  Bytes bytes = 0;
  Duration start;                 // after the begin of the run; with a trigger: after it fired
  uint32_t trigger = kNoTrigger;  // index into Workload::triggers; none: it waits for no other flow
  // Triggers that the flow fires: `on_sent` when its sender has the last acknowledgement,
  // `on_received` when its receiver has all bytes.
  std::vector<uint32_t> on_sent;
  std::vector<uint32_t> on_received;
  uint32_t job = 0;        // index into Workload::jobs
  uint64_t id = 0;         // as the file names it; otherwise its index
  uint32_t operation = 0;  // the number of its repetition (operations.h)
};

void shift_triggers(WorkloadFlow& flow, uint32_t by);

struct WorkloadTrigger {
  enum class Kind : uint8_t {
    kOneShot,    // the first firing starts all flows that wait for it
    kMultiShot,  // each firing starts the next flow that waits for it, in the order of the list
    kBarrier,    // the firing number `count` starts all flows that wait for it
  };
  Kind kind = Kind::kOneShot;
  uint32_t count = 1;
};

// A group of flows with results of its own. It may have its own congestion control (empty: as
// the experiment). Where links are shared by weight, a flow of weight 2 gets twice the rate of a
// flow of weight 1.
struct WorkloadJob {
  std::string name;
  std::string congestion_control;
  uint32_t weight = 1;
};

struct Workload {
  std::string name;
  uint32_t hosts = 0;  // flows name hosts below this
  std::vector<WorkloadFlow> flows;
  std::vector<WorkloadTrigger> triggers;
  std::vector<WorkloadJob> jobs = {WorkloadJob{.name = "all"}};
};

// The first flow that can never start: its trigger fires too seldom, or waits for the flow itself.
// Nothing when all start. Expects indices of triggers to be in range.
std::optional<size_t> never_starting_flow(const Workload& workload);

// The hosts that take part in a workload, in the order of their roles.
using Hosts = std::span<const uint32_t>;

// The flows, by index, that must be done before a flow starts: all received, or all acknowledged.
struct After {
  std::vector<uint32_t> received;
  std::vector<uint32_t> sent;
};

// Makes a workload of flows that wait for one another: their triggers from the flows that must have
// been received, or acknowledged, before a flow starts.
class FlowGraph {
 public:
  // Returns the flow's index; indexes ascend from 0.
  uint32_t add(uint32_t source, uint32_t destination, Bytes bytes, Duration start = {});
  uint32_t add_after(const After& after, uint32_t source, uint32_t destination, Bytes bytes) {
    const uint32_t index = add(source, destination, bytes);
    start_after(index, after);
    return index;
  }
  // `flow` starts a time `start` after all flows in `after` have ended. Called once per flow.
  void start_after(uint32_t flow, const After& after);

  // A new trigger's index.
  uint32_t add_trigger(WorkloadTrigger trigger);
  WorkloadFlow& flow(uint32_t index) { return workload_.flows[index]; }

  Workload take() { return std::move(workload_); }

 private:
  Workload workload_;
};

}  // namespace pacecar
