// WriteTracker: counts the bytes of a peer's writes with immediate, whose packets may arrive in any
// order, and reports when a write is complete. The sender numbers its writes (MSN). At most
// `capacity` writes may be incomplete at a time. Packets of writes beyond that, and packets that
// change a write's length, are refused. Thread rule: one owner.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/base/units.h"

namespace pacecar {

class WriteTracker {
 public:
  class Write {
   public:
    // Whether bytes are still missing after `payload` more.
    bool lacks_more_than(Bytes payload) const { return received + payload < total; }
    // Counts a new packet that does not complete the write.
    void count(Bytes payload) { received += static_cast<uint32_t>(payload); }

   private:
    friend class WriteTracker;
    uint32_t received = 0;
    uint32_t total = 0;
    bool started = false;
    bool complete = false;
  };

  explicit WriteTracker(uint32_t capacity);

  static Bytes bytes(uint32_t capacity);  // Memory outside the object.

  // The write to which this packet belongs; nullptr: refused. `msn24`: the number on the wire.
  // Valid until the next count() that completes one, or cancel().
  Write* find(uint32_t msn24, Bytes payload, Bytes total);
  // Counts one new packet of a write that find() returned; true if that completes the write.
  bool count(Write& write, Bytes payload, Bytes total);
  // The sender has taken the write back: it never completes, and its late packets are refused.
  void cancel(uint32_t msn24);

 private:
  void complete(Write& write);
  Write* at(uint32_t msn24);

  uint32_t capacity_;
  std::vector<Write> writes_;  // a ring, from first_ on; a power of two
  uint64_t first_ = 0;         // oldest incomplete write
};

}  // namespace pacecar
