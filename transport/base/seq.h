// Packet sequence numbers: 64 bits inside, so that they never wrap; 24 bits on the wire
// (InfiniBand Architecture Specification 1.4, section 9.2, BTH).
#pragma once

#include <cstdint>

namespace pacecar {

inline constexpr unsigned kPsnBits = 24;
inline constexpr uint32_t kPsnMask = (1U << kPsnBits) - 1;

// The sequence number nearest to `reference` with the low 24 bits of `wire24`; of two equally near
// ones the older. Never below zero: where the nearest would be, the next above.
constexpr uint64_t expand_psn(uint64_t reference, uint32_t wire24) {
  constexpr uint64_t kSpan = uint64_t{1} << kPsnBits;
  const uint64_t ahead = (wire24 - reference) & kPsnMask;
  const uint64_t newer = reference + ahead;
  return ahead >= kSpan / 2 && newer >= kSpan ? newer - kSpan : newer;
}

}  // namespace pacecar
