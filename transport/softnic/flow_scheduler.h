// FlowScheduler: which queue pair of a software NIC sends next, and how much. Flows take turns of
// one burst, as their limits allow (FlowGate); the queue pairs of a flow take turns within it.
// Queue pairs without a flow, for control writes, are neither paced nor limited. Bounded by flows
// and queue pairs. Pure. Thread rule: one owner.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "transport/base/timer_wheel.h"
#include "transport/base/work_list.h"
#include "transport/nic/nic_flows.h"
#include "transport/softnic/config.h"
#include "transport/softnic/queue_pair.h"
#include "transport/softnic/send_progress.h"

namespace pacecar {

class FlowScheduler {
 public:
  struct Flow : NicFlow {  // of its queue pairs, the paced ones
    using NicFlow::NicFlow;
    bool sparse = false;   // so slow that each packet requests an acknowledgement
    bool waiting = false;  // only for the pacer: the host causes any lateness
    Duration repaid;       // lateness of the host that is caught up gradually
  };
  // What a queue pair has sent in its turn.
  struct Sent {
    Bytes in_flight = 0;  // more than before
    Bytes payload = 0;
    Bytes wire = 0;
  };

  // `queue_pairs`, by slot, and `timers` outlive it. Timers of flows are numbered after all slots.
  FlowScheduler(const SoftNicConfig& config,
                const std::vector<std::unique_ptr<QueuePair>>& queue_pairs, TimerWheel& timers);

  NicFlows<Flow>& flows() { return flows_; }
  const NicFlows<Flow>& flows() const { return flows_; }
  void set_limits(FlowId flow, const FlowLimits& limits, Instant now);
  // Adds a queue pair to the flow of its configuration.
  void join(const QueuePair& qp) {
    flows_.make(qp.config.flow + 1);
    if (qp.config.paced) flows_.join(qp.config.flow, qp.slot);
  }
  void leave(const QueuePair& qp);  // The queue pair neither sends nor receives any more.

  void wake(QueuePair& qp);  // A queue pair may have something to send, or room for it.
  void make_ready(FlowId flow) {
    if (!flows_[flow].gate.on_credit() || can_send_on_credit(flows_[flow]))
      flows_.ready().add(flow);
  }
  void add_control(const QueuePair& qp) { controls_.add(qp.slot); }
  void remove_control(const QueuePair& qp) { controls_.remove(qp.slot); }
  bool has_control(const QueuePair& qp) const { return controls_.listed(qp.slot); }

  bool any_ready() const { return !flows_.ready().empty(); }
  bool idle() const { return flows_.ready().empty() && controls_.empty(); }
  // One turn of the next ready flow; a flow that stays ready goes to the end.
  size_t transmit_flow(Instant now, std::span<TxPacket> out);
  size_t transmit_control(Instant now, std::span<TxPacket> out);

  // --- for the ends of queue pairs ---
  // QueuePairEnd::take_turn: calls end.transmit(now, bytes, out) if the flow's limits allow it.
  template <typename End>
  size_t turn(End& end, Instant now, bool waited, std::span<TxPacket> out) {
    if (!end.has_work()) return 0;
    const FlowId id = end.queue_pair().config.flow;
    Flow& flow = flows_[id];
    Bytes budget = room(flow.gate, end.next_bytes());
    const bool probing = end.probing();
    // An acknowledgement or a new limit wakes the flow; another queue pair may have a probe.
    if (budget == 0 && !probing) return 0;
    const Instant next_send = flow.gate.next_send();
    if (next_send > now) {
      timers_.arm(first_timer_ + id, next_send);
      flow.waiting = true;
      if (!probing) return 0;
      budget = 0;  // only the probe
    }
    if (waited) flow.gate.excuse(now, kTurn, flow.repaid);
    return end.transmit(now, std::min(budget, flow.gate.burst()), out);
  }
  // The payload of this turn from which on no full packet may follow, by window and credit.
  Bytes last_from(const QueuePair& qp) const {
    if (!qp.config.paced) return std::numeric_limits<Bytes>::max();
    const FlowGate& gate = flows_[qp.config.flow].gate;
    const Bytes window = gate.window_left(mtu_);
    return window < mtu_ ? 0 : std::min(window - mtu_ + 1, gate.credit_left());
  }
  bool sparse(const QueuePair& qp) const {
    return qp.config.paced && flows_[qp.config.flow].sparse;
  }
  void on_sent(const QueuePair& qp, const Sent& sent, Instant now) {
    if (!qp.config.paced) return;
    FlowGate& gate = flows_[qp.config.flow].gate;
    gate.on_sent(sent.payload, sent.wire, now);
    gate.on_done(sent.payload - sent.in_flight);  // unequal for packets taken back, and RC's probes
    flows_.report_sharing(qp.config.flow);
  }
  // `done`: bytes that are no longer in flight.
  void on_progress(const QueuePair& qp, Bytes done, const SendProgress& progress);

 private:
  // The duration of a polling turn, after which two packets of a fast flow may leave at once.
  static constexpr Duration kTurn = Duration::from_us(1);

  bool has_work(const Flow& flow) const;
  bool can_send_on_credit(const Flow& flow) const;
  // The bytes that window and credit allow now. The next packet must fit into the window as a
  // whole; any remaining credit is enough for it.
  Bytes room(const FlowGate& gate, Bytes next_bytes) const {
    const Bytes window = gate.window_left(mtu_);
    return next_bytes > window ? 0 : std::min(window, gate.credit_left());
  }

  const Bytes mtu_;
  const Bytes burst_bytes_;
  const Duration jitter_;
  const Duration sparse_interval_;  // between packets of a flow that counts as sparse
  const std::vector<std::unique_ptr<QueuePair>>& queue_pairs_;
  TimerWheel& timers_;
  const uint32_t first_timer_;
  NicFlows<Flow> flows_;
  WorkList controls_;  // slots of queue pairs without a flow, with work
};

}  // namespace pacecar
