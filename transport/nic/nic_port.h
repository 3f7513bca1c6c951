// NicPort: how a NIC is turned. Whoever drives it (an engine, a simulator) takes what has arrived,
// runs timers and messages, and lets out what is due; then perhaps sleeps until something arrives.
//
// Thread rule: one thread at a time, except wait_fd(), which never changes.
#pragma once

#include <cstddef>

#include "transport/nic/nic.h"

namespace pacecar {

class NicPort {
 public:
  virtual ~NicPort() = default;

  virtual Nic& nic() = 0;
  const Nic& nic() const { return const_cast<NicPort*>(this)->nic(); }

  // Takes what has arrived, at most one burst; returns how much: 0 when there was nothing.
  virtual size_t receive(Instant now) = 0;
  // Lets out what is due; returns how much.
  virtual size_t transmit(Instant now) = 0;
  // When transmit or the NIC's timers have something to do if nothing arrives.
  virtual Instant next_deadline() const = 0;

  // From here on wait_fd() becomes readable when something arrives; false when something has
  // arrived already: do not sleep. Call it after receive() has returned 0.
  virtual bool prepare_to_wait() = 0;
  virtual int wait_fd() const = 0;  // -1 if none

  // Where peers reach this host, for the bootstrap; the UDP port where there is one.
  virtual const Address& address() const = 0;

  // Fetches into the cache what a turn touches, for one who turns many NICs.
  virtual void prepare() const {}
};

}  // namespace pacecar
