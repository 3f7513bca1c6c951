// Compares secrets in constant time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pacecar {

// Of two spans of the same size.
inline bool same_bytes(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<uint8_t>(a[i] ^ b[i]);
  asm volatile("" : "+r"(difference));  // or the compiler might end the loop early
  return difference == 0;
}

}  // namespace pacecar
