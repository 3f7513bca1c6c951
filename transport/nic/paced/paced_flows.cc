#include "transport/nic/paced/paced_flows.h"

#include <algorithm>
#include <array>

namespace pacecar {

PacedFlows::PacedFlows(const WaitingWork& work, uint32_t flows, Bytes burst, Duration jitter,
                       Instant now)
    : NicFlows(flows, FlowGate(burst, jitter)), work_(work), timers_(flows, now) {
  make(flows);
}

void PacedFlows::leave(FlowId index, uint32_t slot) {
  NicFlows::leave(index, slot);
  wake(index);  // the others have more window now
}

void PacedFlows::set_limits(FlowId flow, const FlowLimits& limits, Instant now) {
  (*this)[flow].gate.set_limits(limits, now);
  wake(flow);
}

bool PacedFlows::can_send(const NicFlow& flow, uint32_t slot) const {
  const WorkRequest* request = work_.waiting(slot);
  return request != nullptr && flow.gate.has_room(request->length);
}

// A flow on credit counts in FlowSignal::sharing of the others, so it is ready only if it can send.
void PacedFlows::wake(FlowId index) {
  const NicFlow& flow = (*this)[index];
  const auto sends = [&](uint32_t slot) { return can_send(flow, slot); };
  if (!flow.gate.on_credit() || std::ranges::any_of(flow.slots, sends)) ready().add(index);
}

void PacedFlows::on_time(Instant now) {
  std::array<uint32_t, 64> due;
  size_t count = 0;
  do {
    count = timers_.expire(now, due);
    for (const uint32_t flow : std::span(due).first(count)) wake(flow);
  } while (count == due.size());
}

std::optional<PacedFlows::Turn> PacedFlows::next_turn(Instant now) {
  while (!ready().empty()) {
    const FlowId flow = ready().take();
    if (const auto slot = choose(flow, now)) return Turn{.flow = flow, .slot = *slot};
  }
  return std::nullopt;
}

// The queue pair that may send now. If none, a completion, a new limit or a timer wakes the flow.
std::optional<uint32_t> PacedFlows::choose(FlowId index, Instant now) {
  NicFlow& flow = (*this)[index];
  const size_t count = flow.slots.size();
  for (size_t i = 0; i < count; ++i) {
    const size_t at = (flow.turn + i) % count;
    if (!can_send(flow, flow.slots[at])) continue;
    if (const Instant next_send = flow.gate.next_send(); next_send > now) {
      timers_.arm(index, next_send);
      return std::nullopt;
    }
    flow.turn = (at + 1) % count;
    return flow.slots[at];
  }
  return std::nullopt;
}

bool PacedFlows::takes(const Turn& turn, Bytes bytes) const {
  const FlowGate& gate = (*this)[turn.flow].gate;
  return gate.has_room(bytes) && (turn.bytes == 0 || turn.bytes + bytes <= gate.burst());
}

void PacedFlows::on_sent(Turn& turn, Bytes bytes, Bytes wire_bytes, Instant now) {
  (*this)[turn.flow].gate.on_sent(bytes, wire_bytes, now);
  turn.bytes += bytes;
}

void PacedFlows::end_turn(const Turn& turn) {
  report_sharing(turn.flow);
  wake(turn.flow);
}

void PacedFlows::on_acknowledged(FlowId flow, Bytes bytes, Duration rtt) {
  FlowSignal& signal = (*this)[flow].signal;
  signal.acked += bytes;
  if (rtt > Duration()) signal.rtt = rtt;
  report(flow);
}

}  // namespace pacecar
