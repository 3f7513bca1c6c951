// NicFlows: the flows of a NIC that paces by itself, and their reports. The NIC decides when a flow
// is ready, and what it sends in its turn. Bounded by the number of flows; memory grows with the
// flows in use. Thread rule: one owner.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/work_list.h"
#include "transport/nic/flow_gate.h"

namespace pacecar {

// What every such NIC keeps of a flow.
struct NicFlow {
  explicit NicFlow(const FlowGate& limits) : gate(limits) {}

  FlowGate gate;
  std::vector<uint32_t> slots;  // of its queue pairs
  FlowSignal signal;
  FlowArrival arrival;
  size_t turn = 0;  // round robin over `slots`
};

template <std::derived_from<NicFlow> Flow>
class NicFlows {
 public:
  // At most `flows`, whose gates begin as `gate`.
  NicFlows(size_t flows, const FlowGate& gate)
      : gate_(gate), ready_(flows), signals_(flows), arrivals_(flows) {}

  size_t size() const { return flows_.size(); }
  Flow& operator[](FlowId id) { return flows_[id]; }
  const Flow& operator[](FlowId id) const { return flows_[id]; }
  bool any_in_flight() const {
    return std::ranges::any_of(flows_, [](const Flow& flow) { return flow.gate.in_flight() > 0; });
  }

  // Makes the first `count` flows.
  void make(size_t count) {
    while (flows_.size() < count) {
      const auto id = static_cast<FlowId>(flows_.size());
      Flow& flow = flows_.emplace_back(gate_);
      flow.signal.flow = flow.arrival.flow = id;
    }
  }
  // The flow has been made.
  void join(FlowId id, uint32_t slot) { flows_[id].slots.push_back(slot); }
  // A flow ends with its last queue pair: the next one with its number starts fresh.
  void leave(FlowId id, uint32_t slot) {
    Flow& flow = flows_[id];
    std::erase(flow.slots, slot);
    flow.turn = 0;
    if (!flow.slots.empty()) return;
    flow.gate.forget_sent();
    flow.signal = FlowSignal{.flow = id};
    flow.arrival = FlowArrival{.flow = id};
    signals_.remove(id);
    arrivals_.remove(id);
  }

  // Flows that may have something to send.
  WorkList& ready() { return ready_; }
  const WorkList& ready() const { return ready_; }
  // After the flow has sent: one on credit reports how many it shared the link with.
  void report_sharing(FlowId id) {
    Flow& flow = flows_[id];
    if (!flow.gate.on_credit()) return;
    flow.signal.sharing = static_cast<uint32_t>(ready_.size()) + 1;
    signals_.add(id);
  }

  // Its signal has changed.
  void report(FlowId id) { signals_.add(id); }
  void report_arrivals(bool wanted) { reports_arrivals_ = wanted; }
  bool reports_arrivals() const { return reports_arrivals_; }
  void on_arrived(FlowId id, Bytes bytes) {
    if (!reports_arrivals_) return;
    flows_[id].arrival.bytes += bytes;
    arrivals_.add(id);
  }

  size_t poll_signals(std::span<FlowSignal> signals) {
    size_t count = 0;
    while (count < signals.size() && !signals_.empty()) {
      const FlowId id = signals_.take();
      Flow& flow = flows_[id];
      flow.signal.in_flight = flow.gate.in_flight();
      flow.signal.sent = flow.gate.sent();
      signals[count++] = flow.signal;
      flow.signal = FlowSignal{.flow = id, .path_mtu = flow.signal.path_mtu};
    }
    return count;
  }
  size_t poll_arrivals(std::span<FlowArrival> arrivals) {
    size_t count = 0;
    while (count < arrivals.size() && !arrivals_.empty()) {
      const FlowId id = arrivals_.take();
      arrivals[count++] = flows_[id].arrival;
      flows_[id].arrival = FlowArrival{.flow = id};
    }
    return count;
  }

 private:
  FlowGate gate_;
  std::vector<Flow> flows_;
  WorkList ready_;
  WorkList signals_;   // flows with a signal
  WorkList arrivals_;  // flows with unreported arrivals
  bool reports_arrivals_ = false;
};

}  // namespace pacecar
