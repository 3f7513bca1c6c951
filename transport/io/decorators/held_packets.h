// A fixed pool of packet copies, each with the time at which it may leave. They leave by time, and
// in the order in which they came when times are equal. No allocation after construction. One
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/base/units.h"
#include "transport/wire/packet.h"

namespace pacecar {

class HeldPackets {
 public:
  struct Packet {
    std::span<uint8_t> bytes;
    Address peer;
    uint16_t path = 0;                                 // of a packet to send
    TrafficClass traffic_class = TrafficClass::kData;  // likewise
    Ecn ecn = Ecn::kNotCapable;                        // of a packet received
  };

  // `slots` packets of up to `slot_bytes` each.
  HeldPackets(size_t slots, size_t slot_bytes);

  size_t slot_bytes() const { return slot_bytes_; }
  size_t free_slots() const { return free_.size(); }

  // A slot with room for `size` bytes, for the caller to fill; there must be a free one.
  Packet& hold(Instant due, size_t size);

  // The next packet that may leave at `now`, or null. It stays until pop() is called.
  const Packet* next(Instant now) const;
  // Takes next() out of the queue; its memory stays valid until give_back().
  void pop();
  // Frees the slots of all packets that were popped.
  void give_back();

 private:
  struct Entry {
    Instant due;
    uint64_t sequence;
    uint32_t slot;
  };
  static bool leaves_later(const Entry& a, const Entry& b);

  size_t slot_bytes_;
  std::unique_ptr<uint8_t[]> memory_;
  std::vector<Packet> packets_;  // by slot
  std::vector<uint32_t> free_;
  std::vector<uint32_t> popped_;
  std::vector<Entry> queue_;  // a heap: the next to leave in front
  uint64_t held_count_ = 0;
};

}  // namespace pacecar
