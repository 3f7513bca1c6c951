// FlowGate: when the next chunk of a flow may be posted to the device, by the flow's limits: pace,
// first send, window and credit. A chunk is one write and is sent whole, so a limit may be exceeded
// by less than one chunk.
//
// Pure: time is an argument. Thread rule: one owner.
#pragma once

#include "transport/base/pacer.h"
#include "transport/nic/nic.h"

namespace pacecar {

class FlowGate {
 public:
  // `burst`: payload that may leave at once, NicCaps::burst_bytes; `jitter`: usual lateness of a
  // turn.
  FlowGate(Bytes burst, Duration jitter)
      : most_(burst), burst_(burst), jitter_(jitter), pacer_(burst) {}

  void set_limits(const FlowLimits& limits, Instant now);

  // Whether window and credit have room for a chunk. With nothing in flight the window always has
  // room for one: otherwise the flow would stop for ever.
  bool has_room(Bytes bytes) const {
    return sent_ < credit_ && (in_flight_ == 0 || in_flight_ + bytes <= window_);
  }
  // When the next chunk may leave; never() while stopped.
  Instant next_send() const { return pacer_.next_send(); }
  // Payload that may leave per turn; one chunk may go beyond it.
  Bytes burst() const { return burst_; }
  bool on_credit() const { return credit_ != kNoCredit; }

  // `wire_bytes`: of the chunk on the link.
  void on_sent(Bytes bytes, Bytes wire_bytes, Instant now) {
    in_flight_ += bytes;
    sent_ += bytes;
    pacer_.on_sent(wire_bytes, now);
  }
  // The chunk is no longer in flight, for whatever reason.
  void on_done(Bytes bytes) { in_flight_ -= bytes; }
  // The flow has ended; its number may be reused.
  void forget_sent() { sent_ = 0; }

  Bytes in_flight() const { return in_flight_; }
  Bytes sent() const { return sent_; }

 private:
  Bytes most_;
  Bytes burst_;
  Duration jitter_;
  Pacer pacer_;
  Bytes window_ = 0;
  Bytes credit_ = kNoCredit;
  Bytes in_flight_ = 0;
  Bytes sent_ = 0;
};

}  // namespace pacecar
