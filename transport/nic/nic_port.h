// NicPort: how an engine or a simulator drives a NIC. In each turn it takes received packets, runs
// timers and messages, and transmits due packets. Then it may sleep until something arrives. Thread
// rule: one thread at a time, except wait_fd(), which never changes.
#pragma once

#include <cstddef>

#include "transport/nic/nic.h"

namespace pacecar {

class NicPort {
 public:
  virtual ~NicPort() = default;

  virtual Nic& nic() = 0;
  const Nic& nic() const { return const_cast<NicPort*>(this)->nic(); }

  // Takes received packets or completions, at most one burst. Returns how many.
  virtual size_t receive(Instant now) = 0;
  virtual void on_time(Instant now) = 0;  // Runs the timers that are due.
  // Transmits everything that is due. Returns the number of packets or writes.
  virtual size_t transmit(Instant now) = 0;
  // When transmit() or on_time() must be called even if nothing arrives; Instant::never(): never.
  virtual Instant next_deadline() const = 0;

  // From here on wait_fd() becomes readable when something arrives. False: something has already
  // arrived, do not sleep. Call it after receive() has returned 0.
  virtual bool prepare_to_wait(Instant now) = 0;
  virtual int wait_fd() const = 0;  // -1 if none

  // The address at which peers reach this host, for the bootstrap, with the UDP port if any.
  virtual const Address& address() const = 0;
};

}  // namespace pacecar
