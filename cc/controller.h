// Controller: decides how fast one flow may send. A flow is a (source NIC, destination NIC) pair.
//
// Purity: no clock, I/O, randomness or allocation after construction; time comes with every call.
// The message layer feeds signals and applies decide(); the NIC enforces rate and window.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "transport/base/telemetry.h"
#include "transport/base/units.h"

namespace pacecar {

// What a controller is told about its flow's network when it is made.
struct FlowEnvironment {
  Rate line_rate;         // of our own link; never 0
  Bytes mtu = 4096;       // payload bytes per packet
  Bytes overhead = 0;     // of a packet on the wire beyond its payload; rates count it
  Bytes burst_bytes = 0;  // granularity of the NIC's pacer; at least mtu
  Duration base_rtt;      // expected round trip without queues; 0 when unknown
  bool trimming = false;  // switches cut off payloads instead of dropping packets
};

struct AckSample {
  Instant now;
  Duration rtt;         // 0: this acknowledgement carries no usable round trip
  Bytes acked = 0;      // newly acknowledged payload bytes
  Bytes marked = 0;     // of these, with ECN congestion experienced
  Bytes in_flight = 0;  // after this acknowledgement
  Bytes sent = 0;       // by the flow since it began, repetitions included
  // The very packet that this acknowledgement answers had congestion experienced.
  bool echo_marked = false;
  std::span<const TelemetryHop> telemetry;  // of that packet; valid during the call
};

enum class LossKind : uint8_t {
  kMissing,  // found by the sender: others arrived, or nothing did
  kTrimmed,  // told by the receiver: a switch had cut off the payload
};

struct LossSample {
  Instant now;
  LossKind kind = LossKind::kMissing;
  Bytes lost = 0;       // newly known to be lost, payload bytes
  Duration rtt{};       // kTrimmed: from sending the packet to this word of it; 0: unknown
  Bytes in_flight = 0;  // after this
  Bytes sent = 0;       // as in AckSample
};

// A receiver's word on how fast this flow may go (congestion-control grant).
struct Grant {
  // A credit instead of a rate: `credit` counts, rate, phase and validity mean nothing.
  bool is_credit = false;
  Bytes credit = 0;  // all that was granted since the flow began, modulo 2^30
  Rate rate;
  Duration phase;      // added to the arrival of the CTS for the first send
  Duration validity;   // the sender slows down by itself when no newer grant came for this long
  uint16_t epoch = 0;  // the newest epoch wins, modulo 2^16
};

// A sender's word on what it could use.
struct Demand {
  // Of a flow that runs on credit: `credit` counts, usable and backlog mean nothing.
  bool is_credit = false;
  Bytes credit = 0;    // what Grant::credit should become, modulo 2^30
  Rate usable;         // the rate at which the sender itself is the limit
  Bytes backlog = 0;   // bytes waiting for permission or in flight
  uint16_t epoch = 0;  // newest grant epoch that the sender has seen
};

// Where a flow stands at its sender, for the demand that it announces. In payload bytes.
// `sent - in_flight + backlog` is what the flow wants to have sent in all, as far as known now.
struct FlowStanding {
  Bytes backlog = 0;     // has a receive and is not acknowledged, in flight included
  Bytes in_flight = 0;   // by the newest signal
  Bytes sent = 0;        // since it began, repetitions included; by the same signal
  uint32_t sharing = 1;  // flows that competed for the sender's link when this one sent last
};

// Why the rate is what it is.
enum class LimitedBy : uint8_t { kLine, kGrant, kNetwork, kApplication };

struct Decision {
  Rate rate;
  Instant first_send;  // nothing before this time
  Bytes window = 0;    // most bytes in flight
  // The most that the flow may have sent since it began, repetitions included; ~0: no such limit.
  Bytes credit = ~Bytes{0};
  LimitedBy limited_by = LimitedBy::kLine;
  // A new rate counts from the next packet on; the one that waits for its time keeps it.
  bool from_next_packet = false;
};

class Controller {
 public:
  virtual ~Controller() = default;

  virtual std::string_view name() const = 0;
  // Bytes given to the NIC, which sends them as decide() allows.
  virtual void on_send(Instant now, Bytes bytes) = 0;
  virtual void on_ack(const AckSample& sample) = 0;
  virtual void on_loss(const LossSample& sample) = 0;
  virtual void on_timeout(Instant now) = 0;
  virtual void on_grant(Instant now, const Grant& grant) = 0;
  virtual Decision decide(Instant now) = 0;
  // What the receiver should know at once; asked after whatever may change it, and sent when it
  // differs from what was sent last. Without an answer the demand is announced when a backlog
  // appears or ends, lazily.
  virtual std::optional<Demand> demand(Instant, const FlowStanding&) { return std::nullopt; }
};

}  // namespace pacecar
