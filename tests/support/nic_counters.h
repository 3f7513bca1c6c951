// Counters of a NIC as values that tests compare and print.
#pragma once

#include <cstring>
#include <ostream>

#include "transport/nic/nic.h"

namespace pacecar {

inline bool operator==(const NicCounters& a, const NicCounters& b) {
  static_assert(sizeof(NicCounters) % sizeof(uint64_t) == 0);
  return std::memcmp(&a, &b, sizeof a) == 0;
}

inline void PrintTo(const NicCounters& counters, std::ostream* out) {
  uint64_t values[sizeof(NicCounters) / sizeof(uint64_t)];
  std::memcpy(values, &counters, sizeof counters);
  for (const uint64_t value : values) *out << value << ' ';
}

}  // namespace pacecar
