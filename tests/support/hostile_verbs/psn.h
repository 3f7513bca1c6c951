// Packet sequence numbers, modulo 2^24.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tests/support/hostile_verbs/wire.h"

namespace pacecar::hostile {

constexpr uint32_t kPsnMask = (1 << 24) - 1;

inline uint32_t psn_after(uint32_t psn, uint32_t count) { return (psn + count) & kPsnMask; }
inline uint32_t psn_before(uint32_t psn) { return (psn - 1) & kPsnMask; }
// How far `a` is ahead of `b`.
inline int32_t ahead(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(((a - b) & kPsnMask) << 8) >> 8;
}
// The packets of a message of `length` bytes.
inline uint32_t packets_of(uint64_t length) {
  return static_cast<uint32_t>(
      std::max<uint64_t>(1, (length + Wire::kSegment - 1) / Wire::kSegment));
}

}  // namespace pacecar::hostile
