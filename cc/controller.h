// Controller: decides how fast one flow may send. A flow is a (source NIC, destination NIC) pair.
// Purity: no clock, I/O, randomness or allocation after construction; time comes with every call.
// The message layer feeds signals and applies decide(); the NIC enforces rate and window.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "transport/base/flow_limits.h"
#include "transport/base/flow_signal.h"
#include "transport/base/units.h"

namespace pacecar {

class HostLink;

// A flow's network, as known when its controller is made.
struct FlowEnvironment {
  Rate line_rate;               // of our own link; never 0
  Bytes mtu = 4096;             // payload bytes per packet
  Bytes overhead = 0;           // of a packet on the wire beyond its payload; rates count it
  Bytes burst_bytes = 0;        // granularity of the NIC's pacer; at least mtu
  Duration base_rtt;            // expected round trip without queues; 0 when unknown
  Rate rate_max;                // set by the application; included in line_rate; 0: none
  bool trimming = false;        // switches cut off payloads instead of dropping packets
  double oversubscription = 1;  // capacity of the edge links over that of the core; >= 1
  // Random delay that end hosts add to round trips; smaller differences mean nothing.
  Duration jitter;
  Duration pause;  // How long a healthy end host may do nothing: its thread was not scheduled.
  // Receivers measure the packets' one-way delays, and react to queues.
  bool receivers_time_arrivals = false;
  // The rate that the NIC begins with, before anything is known of its link; 0: the line rate.
  Rate first_rate;
  // Shifts the phases that this host grants. Set by the simulator, whose hosts share a clock.
  Duration grid_origin;
  // The link in this direction, where processes of one host share it; null: not shared.
  HostLink* host_link = nullptr;
};

// Larger round trips mean a stalled host, whatever their value. It also keeps arithmetic in range.
inline constexpr Duration kMaxRtt = Duration::from_s(1);

enum class LossKind : uint8_t {
  kMissing,  // found by the sender: others arrived, or nothing did
  kTrimmed,  // reported by the receiver: a switch cut off the payload
};

struct Loss {
  LossKind kind = LossKind::kMissing;
  Bytes lost = 0;          // newly known to be lost, payload bytes
  Duration rtt{};          // kTrimmed: from sending the packet to this notice; 0: unknown
  Bytes in_flight = 0;     // after this
  Bytes sent = 0;          // as in FlowSignal
  bool rerouting = false;  // as in FlowSignal
};

// The rate, or credit, that a receiver grants a flow.
struct Grant {
  // It grants credit instead of a rate: rate, phase and validity are not used.
  bool is_credit = false;
  Bytes credit = 0;  // total granted since the flow began, modulo 2^30
  Rate rate;
  // If `aligned`: a packet leaves at (arrival of the grant) - (base round trip) + `phase`, and one
  // every gap after it. A gap is the time of one burst at `rate`; 0 <= phase <= gap. Packets of
  // flows with different phases do not meet at the receiver.
  Duration phase;
  bool aligned = false;
  // For an idle flow: other flows use the link. When this flow begins, it may send the bytes of a
  // quarter of a round trip at `rate`, and then waits for a new grant.
  bool busy = false;
  // For an idle flow, before the fan-in is known: assumes that every flow that could begin does.
  bool guessed = false;
  Duration validity;   // the sender slows down if no newer grant comes within it
  uint16_t epoch = 0;  // the newest epoch wins, modulo 2^16
};

// What a sender could use.
struct Demand {
  bool is_credit = false;  // The flow is on credit: usable and wanted are not used.
  Bytes credit = 0;        // what Grant::credit should become, modulo 2^30
  // What the sender's link and the core leave it; 0: nothing to send, all of `wanted` has arrived.
  Rate usable;
  // All payload that the flow has wanted to send since it began, including arrived bytes; modulo
  // 2^32. It is a total, so that the next demand replaces a late or lost one.
  Bytes wanted = 0;
  uint16_t epoch = 0;  // the newest epoch wins, modulo 2^16; on sird's credit: see sird_credit.h
};

// The state of a flow at its sender, for its demand. In payload bytes. `sent - in_flight + backlog`
// is all that the flow has wanted to send, as far as known now.
struct FlowStats {
  Bytes backlog = 0;         // receive posted, not acknowledged; in flight included
  Bytes acked = 0;           // acknowledged since it began
  Bytes in_flight = 0;       // by the newest signal
  Bytes sent = 0;            // since it began, retransmissions included; by the same signal
  uint32_t sharing = 1;      // flows that competed for the sender's link when this one sent last
  bool window_full = false;  // until the newest signal, for reports
};

// What limits a flow whose rate is environment.line_rate: the link, or rate_max where that is less.
constexpr LimitedBy limit_at_line(const FlowEnvironment& environment) {
  const bool bounded =
      environment.rate_max > Rate() && environment.rate_max <= environment.line_rate;
  return bounded ? LimitedBy::kBudget : LimitedBy::kLine;
}

// Why a flow has its rate: the limits that apply to it, for reports. 0: does not apply.
struct Explanation {
  LimitedBy limited_by = LimitedBy::kLine;
  Rate rate;
  Rate grant;          // from the receiver, as in force now
  Duration grant_age;  // since the newest grant arrived
  Duration phase;
  uint16_t epoch = 0;
  Rate share;  // of the sender's own link
  Rate core;   // what the network between carries, as far as known
  Rate rate_max;
};

class Controller {
 public:
  virtual ~Controller() = default;

  virtual std::string_view name() const = 0;
  virtual void on_ack(Instant now, const FlowSignal& ack) = 0;
  virtual void on_loss(Instant, const Loss&) {}
  virtual void on_timeout(Instant) {}
  virtual void on_grant(Instant now, const Grant& grant) = 0;
  virtual FlowLimits decide(Instant now) = 0;
  // The demand for the receiver, if the controller has one. Asked for after every event that may
  // change it and, while there is a backlog, by housekeeping; sent if it differs from the last one.
  virtual std::optional<Demand> demand(Instant, const FlowStats&) { return std::nullopt; }
  virtual Explanation explain(Instant now) {
    return {.limited_by = decide(now).limited_by, .rate = decide(now).rate};
  }
};

}  // namespace pacecar
