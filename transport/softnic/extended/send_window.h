// The packets of a queue pair in flight: when each was sent, on which path, and whether it is
// acknowledged. Losses are found by time, not by order (RACK, RFC 8985): a packet is lost when one
// that was sent sufficiently later has arrived. So packets may take any number of paths.
// Invariants: unacknowledged() <= every packet in flight < next(); next() - unacknowledged() never
// exceeds the size. A packet is acknowledged or in one of two lists: in flight, ordered by the time
// of its last transmission; or lost, ordered by the time at which the loss was found. Bounded:
// allocated once. Thread rule: one owner.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "transport/base/units.h"

namespace pacecar {

class SendWindow {
 public:
  // One packet of a work request.
  struct Packet {
    uint32_t request = 0;  // counts the queue pair's work requests from its start, modulo 2^32
    uint32_t index = 0;    // within the work request
    uint32_t bytes = 0;    // below 2^16
  };

  struct Loss {
    Bytes bytes = 0;
    uint16_t path = 0;
  };

  SendWindow(uint32_t size, uint64_t first_psn);  // `size` packets, a power of two, at most 2^15.

  bool full() const { return next_ - unacknowledged_ == packets_.size(); }
  bool empty() const { return next_ == unacknowledged_; }
  uint64_t next() const { return next_; }
  uint64_t unacknowledged() const { return unacknowledged_; }
  Bytes in_flight() const { return in_flight_; }

  uint64_t room() const { return packets_.size() - (next_ - unacknowledged_); }
  // Adds a new packet and returns its PSN. Not when full.
  uint64_t send(const Packet& packet, uint16_t path, Instant now) {
    return send_run(packet, 1, path, now);
  }
  // Adds `count` new packets of one work request, 1 to room(), and returns the first one's PSN.
  uint64_t send_run(const Packet& first, uint32_t count, uint16_t path, Instant now);
  bool has_lost() const { return !lost_.empty(); }
  // The packet whose loss was found first; false: none. resend() removes it from the list.
  bool next_lost(uint64_t* psn, Packet* packet) const;
  void resend(uint64_t psn, uint16_t path, Instant now);

  // Acknowledges one packet and returns it in `packet`, so that the caller can count it for its
  // work request. False: it was acknowledged before, or never sent.
  bool acknowledge(uint64_t psn, Packet* packet);
  struct Acknowledged {
    uint32_t request = 0;
    uint32_t packets = 0;
    Bytes bytes = 0;
  };
  // Acknowledges packets before `end`, from the oldest on, while of one work request and sent one
  // after another, and moves unacknowledged() over them. None if the oldest is not in flight.
  Acknowledged acknowledge_oldest(uint64_t end);
  // The peer has refused this packet: it counts as lost, and is sent again at once (as taken back).
  // False if it is not in flight.
  bool refuse(uint64_t psn, Packet* packet);
  // The transmission of this packet at `timestamp` (low 32 bits) is lost. nullopt: the packet is
  // not in flight, or there was a newer transmission, which may still arrive.
  std::optional<Loss> lose_sending(uint64_t psn, uint32_t timestamp);
  // The path of that transmission; nullopt: there was a newer one, or it is no longer known.
  std::optional<uint16_t> path_of(uint64_t psn, uint32_t timestamp) const;
  // Time and path of the newest transmission of a packet that is still in the window.
  Instant sent_at(uint64_t psn) const { return packets_[index(psn)].sent; }
  uint16_t path_at(uint64_t psn) const { return packets_[index(psn)].path; }
  void advance();  // Moves unacknowledged() over all acknowledged packets.
  // The packet in flight that was sent first is lost, if before `limit`. Call it until nullopt.
  std::optional<Loss> lose_oldest_before(Instant limit);
  // When the packet in flight that was sent first was sent; never() if there is none.
  Instant oldest_sending() const {
    return in_flight_list_.empty() ? Instant::never() : packets_[in_flight_list_.first].sent;
  }

  // When the packet in flight that was sent last was sent; Instant() if there is none.
  Instant newest_sending() const {
    return in_flight_list_.empty() ? Instant() : packets_[in_flight_list_.last].sent;
  }

  // Memory outside the object.
  static Bytes queue_bytes(uint32_t size) { return size * sizeof(Slot); }

 private:
  enum class State : uint8_t { kAcknowledged, kInFlight, kLost };
  using Place = uint16_t;  // in packets_
  static constexpr Place kNone = 0xFFFF;
  // A work request has less than 2^32 bytes, and packets 256 and more.
  static constexpr uint32_t kIndexBits = 30;
  static constexpr uint32_t kStateBits = 2;
  static constexpr uint32_t kIndexMask = (1U << kIndexBits) - 1;
  static constexpr uint32_t kStateMask = (1U << kStateBits) - 1;
  struct Slot {
    Instant sent;
    uint32_t request = 0;
    uint32_t index : kIndexBits = 0;
    uint32_t state : kStateBits = static_cast<uint32_t>(State::kAcknowledged);
    uint16_t bytes = 0;
    uint16_t path = 0;
    Place next = kNone;  // in its list
    Place previous = kNone;

    Packet packet() const { return {request, index, bytes}; }
    bool is(State wanted) const { return state == static_cast<uint32_t>(wanted); }
    void set(State now) { state = static_cast<uint32_t>(now) & kStateMask; }
  };
  static_assert(sizeof(Slot) == 24);
  struct List {
    Place first = kNone;
    Place last = kNone;
    bool empty() const { return first == kNone; }
  };

  void append(List& list, size_t place);
  void remove(List& list, const Slot& slot);
  void lose(size_t place);
  size_t index(uint64_t psn) const { return psn & (packets_.size() - 1); }
  bool in_window(uint64_t psn) const { return psn >= unacknowledged_ && psn < next_; }

  std::vector<Slot> packets_;  // by PSN, a ring
  List in_flight_list_;
  List lost_;
  uint64_t unacknowledged_;
  uint64_t next_;
  Bytes in_flight_ = 0;
};

}  // namespace pacecar
