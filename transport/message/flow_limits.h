// Brings the NIC's signals to a flow's controller, and applies its decision at the NIC.
#pragma once

#include <algorithm>
#include <span>

#include "cc/controller.h"
#include "transport/nic/nic.h"

namespace pacecar {

// Runs for each acknowledgement, so it is inlined.
[[gnu::always_inline]] inline void take_signal(Controller& controller, FlowStats& stats,
                                               const FlowSignal& signal, Instant now) {
  const auto on_loss = [&](LossKind kind, Bytes lost) {
    if (lost == 0) return;
    controller.on_loss({.now = now,
                        .kind = kind,
                        .lost = lost,
                        .rtt = kind == LossKind::kTrimmed ? signal.trimmed_rtt : Duration(),
                        .in_flight = signal.in_flight,
                        .sent = signal.sent,
                        .rerouting = signal.rerouting});
  };
  on_loss(LossKind::kMissing, signal.lost);
  on_loss(LossKind::kTrimmed, signal.trimmed);
  if (signal.timed_out) controller.on_timeout(now);
  if (signal.acked > 0) {
    controller.on_ack({.now = now,
                       .rtt = signal.rtt,
                       .acked = signal.acked,
                       .marked = signal.marked,
                       .in_flight = signal.in_flight,
                       .sent = signal.sent,
                       .rerouting = signal.rerouting,
                       .echo_marked = signal.echo_marked,
                       .telemetry = std::span(signal.telemetry).first(signal.hops)});
  }
  stats.acked += signal.acked;
  stats.backlog -= std::min(signal.acked, stats.backlog);
  stats.in_flight = signal.in_flight;
  stats.sent = signal.sent;
  if (signal.sharing > 0) stats.sharing = signal.sharing;
}

// `in_force` is the controller's previous decision. The NIC is called only if the new one differs.
inline void apply_decision(Nic& nic, FlowId flow, Controller& controller, Decision& in_force,
                           Instant now) {
  Decision decision = controller.decide(now);
  const Bytes receive_bytes = nic.caps().receive_bytes;
  // The window is at most a quarter of the receiving host's buffer: its queue is not the network's,
  // and the controller does not see it.
  if (receive_bytes != 0) decision.window = std::min(decision.window, receive_bytes / 4);
  const bool same = decision.rate == in_force.rate && decision.first_send == in_force.first_send &&
                    decision.window == in_force.window && decision.credit == in_force.credit &&
                    decision.burst == in_force.burst && !decision.aligned &&
                    decision.grid == SendGrid();
  in_force = decision;
  if (same) return;
  nic.set_flow_limits(flow,
                      {.rate = decision.rate,
                       .first_send = decision.first_send,
                       .aligned = decision.aligned,
                       .grid = decision.grid,
                       .window = decision.window,
                       .burst = decision.burst,
                       .credit = decision.credit,
                       .from_next_packet = decision.from_next_packet},
                      now);
}

}  // namespace pacecar
