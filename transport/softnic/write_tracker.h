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
  enum class Verdict : uint8_t { kIncomplete, kComplete, kRefused };

  explicit WriteTracker(uint32_t capacity);

  // Memory beside the object itself.
  static Bytes bytes(uint32_t capacity) { return capacity * sizeof(Write); }

  // Would add() accept this packet? `msn24` is the number as it came on the wire.
  bool acceptable(uint32_t msn24, Bytes payload, Bytes total) const;
  // Counts one new packet.
  Verdict add(uint32_t msn24, Bytes payload, Bytes total);
  // The sender has taken the write back: it never completes, and its late packets are refused.
  void cancel(uint32_t msn24);

 private:
  struct Write {
    uint32_t received = 0;
    uint32_t total = 0;
    bool started = false;
    bool complete = false;
  };
  void complete(Write& write);
  const Write* find(uint32_t msn24, uint64_t* msn) const;

  std::vector<Write> writes_;  // a ring over [first_, first_ + size)
  uint64_t first_ = 0;         // oldest incomplete write
};

}  // namespace pacecar
