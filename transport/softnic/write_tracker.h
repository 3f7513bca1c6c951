// Counts the bytes of a peer's writes with immediate, whose packets arrive in any order, and tells
// when one is complete.
//
// Writes are numbered by the sender (MSN). At most `capacity` may be incomplete at once; a peer
// that exceeds that, or that disagrees with itself about a write's length, is refused.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/base/units.h"

namespace pacecar {

class WriteTracker {
 public:
  class Write {
   public:
    // Whether so much more leaves something missing.
    bool lacks_more_than(Bytes payload) const { return received + payload < total; }
    // Counts one new packet that does.
    void count(Bytes payload) { received += static_cast<uint32_t>(payload); }

   private:
    friend class WriteTracker;
    uint32_t received = 0;
    uint32_t total = 0;
    bool started = false;
    bool complete = false;
  };

  explicit WriteTracker(uint32_t capacity);

  // Memory beside the object itself.
  static Bytes bytes(uint32_t capacity);

  // The write to which this packet belongs; nullptr: it is refused. `msn24` is the number as it
  // came on the wire. Valid until the next count() that completes one, or cancel().
  Write* find(uint32_t msn24, Bytes payload, Bytes total);
  // What has not arrived of a write of which something has; else 0.
  Bytes left(uint32_t msn24) const;
  // Counts one new packet of a write that was found for it; true when that completes the write.
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
