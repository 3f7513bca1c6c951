// One direction of a cable with the queue in front of it: serialises packets one after another at
// an exact rate, then delays them by the propagation time. Pure arithmetic; no packet is held here.
//
// The backlog is what has been accepted and not yet serialised, to the byte; the bound and the
// marking threshold apply to it. Invariant: the time at which the link falls idle is exact, as
// nanoseconds and a remainder in units of 1/rate nanoseconds.
// Thread rule: one thread.
#pragma once

#include <cstdint>

#include "transport/base/units.h"

namespace pacecar {

struct SimLinkConfig {
  Rate rate = Rate::from_gbps(100);
  Duration delay = Duration::from_us(1);  // propagation
  Bytes queue_bytes = 1 << 20;            // tail drop beyond
  Bytes ecn_threshold_bytes = 0;          // backlog that marks, the packet included; 0: never
};

class SimLink {
 public:
  struct Offer {
    bool accepted = false;
    bool marked = false;  // accepted with the congestion mark
    Instant arrival;      // of the last bit at the far end, rounded up
  };

  explicit SimLink(const SimLinkConfig& config);

  // Offers a packet at `now`, which never goes back.
  Offer offer(Bytes size, Instant now);
  Bytes backlog(Instant now) const;
  // The first time at which a packet of `size` bytes finds room if nothing else is offered.
  Instant room_at(Bytes size) const;

 private:
  SimLinkConfig config_;
  Instant idle_at_;              // all accepted is serialised at idle_at_ + idle_remainder_ / rate
  uint64_t idle_remainder_ = 0;  // numerator, below the rate in bits per second
};

}  // namespace pacecar
