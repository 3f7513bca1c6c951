// PacedFlows: the flows of a NIC that paces whole writes. It decides which queue pair of a flow may
// send, and when, and collects the signals for the congestion control. Bounded by the number of
// flows. Pure: time is an argument. Thread rule: one owner.
#pragma once

#include <cstdint>
#include <optional>

#include "transport/base/timer_wheel.h"
#include "transport/nic/nic_flows.h"

namespace pacecar {

// The work requests that wait on a NIC's queue pairs; `slot`: the NIC's number of a queue pair.
class WaitingWork {
 public:
  // The oldest work request that the device could take now; nullptr: none.
  virtual const WorkRequest* waiting(uint32_t slot) const = 0;

 protected:
  ~WaitingWork() = default;
};

class PacedFlows : private NicFlows<NicFlow> {
 public:
  // `work` outlives it. `burst` and `jitter` as of FlowGate.
  PacedFlows(const WaitingWork& work, uint32_t flows, Bytes burst, Duration jitter, Instant now);

  using NicFlows::any_in_flight, NicFlows::join, NicFlows::on_arrived, NicFlows::size;
  using NicFlows::poll_arrivals, NicFlows::poll_signals, NicFlows::report_arrivals;

  // A flow ends with its last queue pair; its number may then be reused.
  void leave(FlowId flow, uint32_t slot);

  void set_limits(FlowId flow, const FlowLimits& limits, Instant now);
  // Call it when a queue pair has more to send, or window or credit have more room.
  void wake(FlowId flow);
  void on_time(Instant now);
  // When on_time or next_turn must be called next; Instant(): at once.
  Instant next_deadline() const { return ready().empty() ? timers_.next_deadline() : Instant(); }

  // One turn: what may leave at once from one queue pair.
  struct Turn {
    FlowId flow = 0;
    uint32_t slot = 0;
    Bytes bytes = 0;  // posted to the device in this turn
  };
  // The next queue pair that may send now; nullopt: none may.
  std::optional<Turn> next_turn(Instant now);
  // Whether its next work request, of `bytes`, still belongs to this turn.
  bool takes(const Turn& turn, Bytes bytes) const;
  // `wire_bytes`: of the work request on the link.
  void on_sent(Turn& turn, Bytes bytes, Bytes wire_bytes, Instant now);
  void end_turn(const Turn& turn);

  // These bytes are no longer in flight, for whatever reason.
  void on_done(FlowId flow, Bytes bytes) { (*this)[flow].gate.on_done(bytes); }
  void on_acknowledged(FlowId flow, Bytes bytes, Duration rtt);  // `rtt` 0: not known.

 private:
  bool can_send(const NicFlow& flow, uint32_t slot) const;
  std::optional<uint32_t> choose(FlowId index, Instant now);

  const WaitingWork& work_;
  TimerWheel timers_;  // flows that wait for their next send
};

}  // namespace pacecar
