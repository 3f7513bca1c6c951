// One turn of the crank: packets in, timers, messages, packets out. Joins a packet I/O, the
// software NIC and the messenger above it; the engine turns it with the real clock, the simulator
// with a virtual one.
//
// Pure: time is an argument. Thread rule: one thread at a time.
#pragma once

#include <array>

#include "transport/base/check.h"
#include "transport/io/packet_io.h"
#include "transport/message/messenger.h"
#include "transport/softnic/soft_nic.h"

namespace pacecar {

class PollLoop {
 public:
  static constexpr size_t kMaxTransmit = 64;

  // All three outlive the loop. `transmit` is how many packets are made at a time, 1 to
  // kMaxTransmit: what is made is not reconsidered while the packet I/O does not take it.
  PollLoop(PacketIo& io, SoftNic& nic, Messenger& messenger, size_t transmit = kMaxTransmit)
      : io_(io), nic_(nic), messenger_(messenger), transmit_(transmit) {
    PACECAR_CHECK(transmit > 0 && transmit <= kMaxTransmit);
  }

  // Takes what has arrived, at most one burst; returns how many packets.
  size_t receive(Instant now);
  // Runs timers, moves messages, hands packets out; returns how many packets.
  size_t advance(Instant now);
  // When advance() has something to do if nothing arrives.
  Instant next_deadline() const;
  // Fetches into the cache what a turn touches, for one who turns many loops.
  void prepare() const;

 private:
  size_t transmit(Instant now);

  PacketIo& io_;
  SoftNic& nic_;
  Messenger& messenger_;
  size_t transmit_;
  size_t outgoing_begin_ = 0;  // of what the packet I/O has not taken yet
  size_t outgoing_end_ = 0;
  uint64_t invalidations_ = 0;
  std::array<RxPacket, 256> received_;
  std::array<TxPacket, kMaxTransmit> outgoing_;
};

}  // namespace pacecar
