// Random numbers that a peer cannot guess: first PSNs, paths, queue pair numbers, keys. Any thread.
#pragma once

#include <sys/random.h>

#include <cstdint>

#include "transport/base/check.h"

namespace pacecar {

// A value of random bytes; aborts without randomness. From the kernel, because OpenSSL's generator
// ends with the process's main(), while NCCL's threads may still connect.
template <typename T>
T random_value() {
  T value;
  static_assert(sizeof value <= 256);  // signals never interrupt a call for 256 bytes or fewer
  PACECAR_CHECK(getrandom(&value, sizeof value, 0) == sizeof value);
  return value;
}

inline uint32_t random_word() { return random_value<uint32_t>(); }
inline uint64_t random_u64() { return random_value<uint64_t>(); }

}  // namespace pacecar
