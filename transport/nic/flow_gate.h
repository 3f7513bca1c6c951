// FlowGate: when a flow may send its next unit, by its limits (rate, first send, window, credit). A
// unit is a packet on the software NIC, and a whole write (chunk) on NICs without pacing. It is
// sent whole, so the credit, or a window smaller than a unit, may be exceeded by less than one.
// Pure: time is an argument. Thread rule: one owner.
#pragma once

#include <algorithm>

#include "transport/base/pacer.h"
#include "transport/nic/nic.h"

namespace pacecar {

class FlowGate {
 public:
  // A flow that was polled late may catch up by this many bursts.
  static constexpr Bytes kCatchUpBursts = 4;
  // A slow flow may catch up by the payload of this many times the jitter.
  static constexpr int64_t kCatchUpJitters = 20;

  // `burst`: NicCaps::burst_bytes, payload that leaves at once; `jitter`: usual lateness of a turn.
  FlowGate(Bytes burst, Duration jitter)
      : most_(burst), burst_(burst), jitter_(jitter), pacer_(burst) {}

  void set_limits(const FlowLimits& limits, Instant now) {
    burst_ = limits.burst == 0 ? most_ : std::min(limits.burst, most_);
    const Bytes late = limits.rate.bytes_in(jitter_ * kCatchUpJitters);
    pacer_.set_catch_up(std::min(std::max(burst_ * kCatchUpBursts, late), most_ * kCatchUpBursts));
    pacer_.set_rate(
        limits.rate, now,
        limits.from_next_packet ? Pacer::Change::kFromNextPacket : Pacer::Change::kAtOnce);
    if (limits.aligned) {
      pacer_.align(limits.first_send);
    } else {
      pacer_.hold_until(limits.first_send);
    }
    pacer_.move_to(limits.grid, now);
    window_ = limits.window;
    credit_ = limits.credit;
  }

  // Bytes that the window has room for. With nothing in flight it always has room for one unit, of
  // `unit` bytes: otherwise the flow would stop for ever.
  Bytes window_left(Bytes unit) const {
    if (in_flight_ == 0) return std::max(window_, unit);
    return in_flight_ < window_ ? window_ - in_flight_ : 0;
  }
  Bytes credit_left() const { return sent_ < credit_ ? credit_ - sent_ : 0; }
  // Whether window and credit have room for a unit of this size.
  bool has_room(Bytes unit) const { return credit_left() > 0 && unit <= window_left(unit); }
  // When the next unit may leave; never() while stopped.
  Instant next_send() const { return pacer_.next_send(); }
  // As Pacer::excuse.
  void excuse(Instant now, Duration grace, Duration most) { pacer_.excuse(now, grace, most); }
  // Payload that may leave per turn; the last unit may go beyond it.
  Bytes burst() const { return burst_; }
  bool on_credit() const { return credit_ != kNoCredit; }

  // `wire_bytes`: bytes on the link.
  void on_sent(Bytes bytes, Bytes wire_bytes, Instant now) {
    in_flight_ += bytes;
    sent_ += bytes;
    pacer_.on_sent(wire_bytes, now);
  }
  // These bytes are no longer in flight, for whatever reason.
  void on_done(Bytes bytes) { in_flight_ -= bytes; }
  // The flow has ended: the next flow with its number counts from 0.
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
