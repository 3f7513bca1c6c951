// The packets of a queue pair that are on their way: when each was sent, on which path, and whether
// it has been acknowledged. Finds losses by time, not by order (RACK, RFC 8985): a packet is lost
// when one that was sent sufficiently later has arrived. So packets may take any number of paths.
//
// Invariants: unacknowledged() <= every packet in flight < next(); next() - unacknowledged() never
// exceeds the size. Bounded: rings allocated once.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "transport/base/fixed_queue.h"
#include "transport/base/units.h"

namespace pacecar {

class SendWindow {
 public:
  // One packet of a work request; `request` counts the queue pair's work requests from its start.
  struct Packet {
    uint64_t request = 0;
    uint32_t index = 0;  // within the work request
    uint32_t bytes = 0;
  };

  struct Loss {
    Bytes bytes = 0;
    uint16_t path = 0;
  };

  // `size` packets, a power of two.
  SendWindow(uint32_t size, uint64_t first_psn);

  bool full() const { return next_ - unacknowledged_ == packets_.size(); }
  bool empty() const { return next_ == unacknowledged_; }
  uint64_t next() const { return next_; }
  uint64_t unacknowledged() const { return unacknowledged_; }
  Bytes in_flight() const { return in_flight_; }

  // Puts a new packet on its way and returns its PSN. Not when full.
  uint64_t send(const Packet& packet, uint16_t path, Instant now);
  // Whether a packet may be waiting to be sent again (next_lost has the last word).
  bool has_lost() const { return !lost_.empty(); }
  // The oldest packet that is known to be lost; false if there is none. Sending it again takes it.
  bool next_lost(uint64_t* psn, Packet* packet);
  void resend(uint64_t psn, uint16_t path, Instant now);
  // The oldest packet that is not acknowledged. Not when empty.
  Packet oldest() const { return packets_[index(unacknowledged_)].packet; }

  // Acknowledges one packet; false if it already was, or was never sent. The caller learns the
  // packet, to count it for its work request.
  bool acknowledge(uint64_t psn, Packet* packet);
  // The peer has refused this packet: it is lost, and sent again at once (taken back by then).
  // False if it is not in flight.
  bool refuse(uint64_t psn, Packet* packet);
  // Likewise, but only the sending at that time (its low 32 bits): a newer one may still arrive.
  std::optional<Loss> lose_sending(uint64_t psn, uint32_t timestamp);
  // The path of that sending, if no newer one of this packet is known.
  std::optional<uint16_t> path_of(uint64_t psn, uint32_t timestamp) const;
  // Moves unacknowledged() over what is acknowledged.
  void advance();
  // Declares lost the packet in flight that was sent first, if that was before `limit`. To be
  // repeated until there is none.
  std::optional<Loss> lose_oldest_before(Instant limit);
  // When the packet in flight that was sent first was sent; never() if there is none.
  Instant oldest_sending();

  // Memory beside the object itself.
  static Bytes queue_bytes(uint32_t size);

 private:
  enum class State : uint8_t { kAcknowledged, kInFlight, kLost };
  struct Slot {
    Packet packet;
    Instant sent;
    State state = State::kAcknowledged;
    uint16_t path = 0;
  };
  // One sending of a packet. A packet that was sent again has a stale entry until it is popped.
  struct Sending {
    uint64_t psn = 0;
    Instant sent;
  };

  void lose(uint64_t psn);
  size_t index(uint64_t psn) const { return psn & (packets_.size() - 1); }
  bool in_window(uint64_t psn) const { return psn >= unacknowledged_ && psn < next_; }
  // Still the newest sending of a packet in flight.
  bool live(const Sending& sending) const;
  void log(Sending sending);
  void log_in_full_queue(Sending sending);

  std::vector<Slot> packets_;     // by PSN, a ring
  FixedQueue<Sending> sendings_;  // by time
  FixedQueue<uint64_t> lost_;     // PSNs to send again; entries acknowledged meanwhile are skipped
  uint64_t unacknowledged_;
  uint64_t next_;
  Bytes in_flight_ = 0;
};

}  // namespace pacecar
