// Controller: decides how fast one flow may send. A flow is a (source NIC, destination NIC) pair.
//
// Purity: no clock, I/O, randomness or allocation after construction; time comes with every call.
// The message layer feeds signals and applies decide(); the NIC enforces rate and window.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "transport/base/send_grid.h"
#include "transport/base/telemetry.h"
#include "transport/base/units.h"

namespace pacecar {

class HostLink;

// What a controller is told about its flow's network when it is made.
struct FlowEnvironment {
  Rate line_rate;               // of our own link; never 0
  Bytes mtu = 4096;             // payload bytes per packet
  Bytes overhead = 0;           // of a packet on the wire beyond its payload; rates count it
  Bytes burst_bytes = 0;        // granularity of the NIC's pacer; at least mtu
  Duration base_rtt;            // expected round trip without queues; 0 when unknown
  Rate budget;                  // that the application set; included in line_rate; 0: none
  bool trimming = false;        // switches cut off payloads instead of dropping packets
  double oversubscription = 1;  // of links at the network's edge over what its core carries; >= 1
  // What end hosts add to round trips by chance; differences below it say nothing.
  Duration jitter;
  // How long an end host may do nothing without being broken: it was not given the processor.
  Duration pause;
  // Receivers know how long packets were on their way, and act on queues.
  bool receivers_look = false;
  // What the NIC uses before anything is known of its link; 0: the line rate.
  Rate first_rate;
  // Added to the phases of our grids. Simulation only: real hosts have clocks of their own.
  Duration grid_origin;
  // The direction of the link that is meant, where processes of one host share it; null: none do.
  HostLink* host_link = nullptr;
};

struct AckSample {
  Instant now;
  Duration rtt;         // 0: this acknowledgement carries no usable round trip
  Bytes acked = 0;      // newly acknowledged payload bytes
  Bytes marked = 0;     // of these, with ECN congestion experienced
  Bytes in_flight = 0;  // after this acknowledgement
  Bytes sent = 0;       // by the flow since it began, repetitions included
  // The NIC looks for a better path: what packets meet says little about the one it will keep.
  bool rerouting = false;
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
  Bytes lost = 0;          // newly known to be lost, payload bytes
  Duration rtt{};          // kTrimmed: from sending the packet to this word of it; 0: unknown
  Bytes in_flight = 0;     // after this
  Bytes sent = 0;          // as in AckSample
  bool rerouting = false;  // likewise
};

// A receiver's word on how fast this flow may go (congestion-control grant).
struct Grant {
  // A credit instead of a rate: `credit` counts, rate, phase and validity mean nothing.
  bool is_credit = false;
  Bytes credit = 0;  // all that was granted since the flow began, modulo 2^30
  Rate rate;
  // Where `aligned`: packets leave this long after the word's arrival less one base round trip, and
  // then every gap, the time of one burst at `rate`. Flows that were given different phases do not
  // meet at the receiver. From 0 to the gap.
  Duration phase;
  bool aligned = false;
  // For a flow that is idle: others use the link. When it begins, it may send a quarter of a round
  // trip's worth at `rate`, and then waits for its own grant.
  bool busy = false;
  // For a flow that is idle: how many flows wake up together is not known yet. The rate is what is
  // there if all did that could.
  bool guessed = false;
  Duration validity;   // the sender slows down by itself when no newer grant came for this long
  uint16_t epoch = 0;  // the newest epoch wins, modulo 2^16
};

// A sender's word on what it could use.
struct Demand {
  // Of a flow that runs on credit: `credit` counts, usable and wanted mean nothing.
  bool is_credit = false;
  Bytes credit = 0;  // what Grant::credit should become, modulo 2^30
  // The rate that the sender's own link and the core leave for this flow; 0: there is nothing to
  // send, and `wanted` has arrived.
  Rate usable;
  // Payload that the flow wants to have delivered since it began, what has arrived included; modulo
  // 2^32. A total, so that a word that is late or lost is made good by the next.
  Bytes wanted = 0;
  // Of a sender that serves one flow at a time: how many it has begun, 1 + modulo kTurns; 0: it
  // serves several. In a collective whose ranks take turns, the one that has begun fewer is late.
  uint8_t turn = 0;
  uint16_t epoch = 0;  // of the word: the newest counts, modulo 2^16

  static constexpr uint8_t kTurns = 128;
};

// Where a flow stands at its sender, for the demand that it announces. In payload bytes.
// `sent - in_flight + backlog` is what the flow wants to have sent in all, as far as known now.
struct FlowStats {
  Bytes backlog = 0;     // has a receive and is not acknowledged, in flight included
  Bytes acked = 0;       // since it began: what the receiver is known to have
  Bytes in_flight = 0;   // by the newest signal
  Bytes sent = 0;        // since it began, repetitions included; by the same signal
  uint32_t sharing = 1;  // flows that competed for the sender's link when this one sent last
};

// Why the rate is what it is.
enum class LimitedBy : uint8_t {
  kLine,         // the sender's own link, or this flow's share of it
  kGrant,        // the receiver
  kNetwork,      // signs of congestion, or a window that is full
  kBudget,       // the rate that the application set
  kHost,         // it may send faster: the hosts are too slow, or too little is under way
  kApplication,  // there is no more to send
};
inline constexpr std::array kLimits = {LimitedBy::kLine,    LimitedBy::kGrant,
                                       LimitedBy::kNetwork, LimitedBy::kBudget,
                                       LimitedBy::kHost,    LimitedBy::kApplication};
std::string_view to_string(LimitedBy limit);
// What limits a flow whose rate is environment.line_rate: the link, or the budget where that is
// less.
LimitedBy limit_at_line(const FlowEnvironment& environment);

struct Decision {
  Rate rate;
  Instant first_send;  // nothing before this time
  // The next packet leaves at `first_send`, also when it would have waited for longer.
  bool aligned = false;
  SendGrid grid;     // the next packet moves to the nearest instant of it; none: it stays
  Bytes window = 0;  // most bytes in flight
  Bytes burst = 0;   // what may leave at once, payload; 0: as much as the NIC likes
  // The most that the flow may have sent since it began, repetitions included; ~0: no such limit.
  Bytes credit = ~Bytes{0};
  LimitedBy limited_by = LimitedBy::kLine;
  // A new rate counts from the next packet on; the one that waits for its time keeps it.
  bool from_next_packet = false;
};

// What a flow is told and takes, for those who ask why its rate is what it is. 0: does not apply.
struct Explanation {
  LimitedBy limited_by = LimitedBy::kLine;
  Rate rate;
  Rate grant;          // the receiver's, as it counts now
  Duration grant_age;  // since the newest word of it
  Duration phase;
  uint16_t epoch = 0;
  Rate share;  // of the sender's own link
  Rate core;   // what the paths between carry, as far as known
  Rate budget;
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
  // What the receiver should know, if it should know anything; asked after whatever may change it
  // and, while there is a backlog, from time to time; sent when it differs from what was sent last.
  virtual std::optional<Demand> demand(Instant, const FlowStats&) { return std::nullopt; }
  virtual Explanation explain(Instant now) {
    return {.limited_by = decide(now).limited_by, .rate = decide(now).rate};
  }
};

}  // namespace pacecar
