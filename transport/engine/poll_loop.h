// One turn of a NIC and the messenger above it: receive, timers, messages, transmit. The engine has
// the real clock, the simulator a virtual one. Pure: time is an argument. One thread at a time.
#pragma once

#include <algorithm>

#include "transport/message/messenger.h"
#include "transport/nic/nic_port.h"

namespace pacecar {

class PollLoop {
 public:
  // Both outlive the loop.
  PollLoop(NicPort& port, Messenger& messenger) : port_(port), messenger_(messenger) {}

  // Receives at most one burst; returns the number of packets or completions.
  size_t receive(Instant now) { return port_.receive(now); }
  // Completes received messages at once. True: some are complete, and no deadline is due.
  bool deliver(Instant now) { return messenger_.finish_receives(now) && next_deadline() > now; }
  // Sends submitted messages at once; all other work waits for the next advance().
  void send_now(Instant now) {
    messenger_.post_submitted_sends(now);
    port_.transmit(now);
  }
  // Runs timers and messages, transmits due packets, and returns the number of packets or writes.
  size_t advance(Instant now) {
    port_.on_time(now);
    messenger_.poll(now);
    // Where control writes may join data packets, both leave together; otherwise data leaves first.
    const size_t sent = port_.nic().caps().software ? 0 : port_.transmit(now);
    messenger_.post_control_writes(now);
    return sent + port_.transmit(now);
  }
  // When advance() has work even if nothing arrives.
  Instant next_deadline() const {
    return std::min(port_.next_deadline(), messenger_.next_deadline());
  }

 private:
  NicPort& port_;
  Messenger& messenger_;
};

}  // namespace pacecar
