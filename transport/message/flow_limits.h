// Applies a controller's decision at the NIC.
#pragma once

#include <algorithm>

#include "cc/controller.h"
#include "transport/nic/nic.h"

namespace pacecar {

// `in_force` is the controller's previous decision. The NIC is called only if the new one differs.
inline void put_in_force(Nic& nic, FlowId flow, Controller& controller, Decision& in_force,
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
