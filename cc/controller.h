// Controller: decides how fast one flow may send. A flow is a (source NIC, destination NIC) pair.
//
// Purity: no clock, I/O, randomness or allocation after construction; time comes with every call.
// The message layer feeds signals and applies decide(); the NIC enforces rate and window.
#pragma once

#include <cstdint>
#include <string_view>

#include "transport/base/units.h"

namespace pacecar {

// What a controller is told about its flow's network when it is made.
struct FlowEnvironment {
  Rate line_rate;         // of our own link; never 0
  Bytes mtu = 4096;       // payload bytes per packet
  Bytes burst_bytes = 0;  // granularity of the NIC's pacer; at least mtu
  Duration base_rtt;      // expected round trip without queues; 0 when unknown
};

struct AckSample {
  Instant now;
  Duration rtt;         // 0: this acknowledgement carries no usable round trip
  Bytes acked = 0;      // newly acknowledged payload bytes
  Bytes marked = 0;     // of these, with ECN congestion experienced
  Bytes in_flight = 0;  // after this acknowledgement
};

// A receiver's word on how fast this flow may go (congestion-control grant).
struct Grant {
  Rate rate;
  Duration phase;      // added to the arrival of the CTS for the first send
  Duration validity;   // the sender slows down by itself when no newer grant came for this long
  uint16_t epoch = 0;  // the newest epoch wins, modulo 2^16
};

// Why the rate is what it is.
enum class LimitedBy : uint8_t { kLine, kGrant, kNetwork, kApplication };

struct Decision {
  Rate rate;
  Instant first_send;  // nothing before this time
  Bytes window = 0;    // most bytes in flight
  LimitedBy limited_by = LimitedBy::kLine;
};

class Controller {
 public:
  virtual ~Controller() = default;

  virtual std::string_view name() const = 0;
  virtual void on_send(Instant now, Bytes bytes) = 0;
  virtual void on_ack(const AckSample& sample) = 0;
  virtual void on_loss(Instant now, Bytes bytes) = 0;
  virtual void on_timeout(Instant now) = 0;
  virtual void on_grant(Instant now, const Grant& grant) = 0;
  virtual Decision decide(Instant now) = 0;
};

}  // namespace pacecar
