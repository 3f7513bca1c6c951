// Brings the NIC's signals to a flow's controller, and the controller's limits to the NIC.
#pragma once

#include <algorithm>

#include "cc/controller.h"
#include "transport/nic/nic.h"

namespace pacecar {

// Runs for each acknowledgement, so it is inlined.
[[gnu::always_inline]] inline void take_signal(Controller& controller, FlowStats& stats,
                                               const FlowSignal& signal, Instant now) {
  const auto on_loss = [&](LossKind kind, Bytes lost) {
    if (lost == 0) return;
    controller.on_loss(now, {.kind = kind,
                             .lost = lost,
                             .rtt = kind == LossKind::kTrimmed ? signal.trimmed_rtt : Duration(),
                             .in_flight = signal.in_flight,
                             .sent = signal.sent,
                             .rerouting = signal.rerouting});
  };
  on_loss(LossKind::kMissing, signal.lost);
  on_loss(LossKind::kTrimmed, signal.trimmed);
  if (signal.timed_out) controller.on_timeout(now);
  if (signal.acked > 0) controller.on_ack(now, signal);
  stats.acked += signal.acked;
  stats.backlog -= std::min(signal.acked + signal.dropped, stats.backlog);
  stats.in_flight = signal.in_flight;
  stats.sent = signal.sent;
  if (signal.sharing > 0) stats.sharing = signal.sharing;
}

// `in_force` are the limits that the NIC was given last. It is called only if the new ones differ.
inline void apply_limits(NicQueuePairs& nic, FlowId flow, Controller& controller,
                         FlowLimits& in_force, Instant now) {
  FlowLimits limits = controller.decide(now);
  const Bytes receive_bytes = nic.caps().receive_bytes;
  // The window is at most a quarter of the receiving host's buffer: its queue is not in the
  // network, and the controller does not see it.
  if (receive_bytes != 0) limits.window = std::min(limits.window, receive_bytes / 4);
  const bool same = limits.rate == in_force.rate && limits.first_send == in_force.first_send &&
                    limits.window == in_force.window && limits.credit == in_force.credit &&
                    limits.burst == in_force.burst && !limits.aligned && limits.grid == SendGrid();
  in_force = limits;
  if (!same) nic.set_flow_limits(flow, limits, now);
}

}  // namespace pacecar
