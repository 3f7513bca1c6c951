// One turn of the crank: what has arrived, timers, messages, what is due to leave. Joins a NIC and
// the messenger above it; the engine turns it with the real clock, the simulator with a virtual
// one.
//
// Pure: time is an argument. Thread rule: one thread at a time.
#pragma once

#include "transport/message/messenger.h"
#include "transport/nic/nic_port.h"

namespace pacecar {

class PollLoop {
 public:
  // Both outlive the loop.
  PollLoop(NicPort& port, Messenger& messenger) : port_(port), messenger_(messenger) {}

  // Takes what has arrived, at most one burst; returns how much.
  size_t receive(Instant now) { return port_.receive(now); }
  // Tells at once of a message that has been received, if all else can wait a little.
  bool deliver(Instant now) { return messenger_.finish_receives(now) && next_deadline() > now; }
  // Lets out at once what has been submitted; all else is for the next advance().
  void hurry(Instant now) {
    messenger_.hurry_sends(now);
    port_.transmit(now);
  }
  // Runs timers, moves messages, lets out what is due; returns how much.
  size_t advance(Instant now);
  // When advance() has something to do if nothing arrives.
  Instant next_deadline() const;

 private:
  NicPort& port_;
  Messenger& messenger_;
};

}  // namespace pacecar
