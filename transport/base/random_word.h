// Random numbers that a peer cannot guess: first PSNs, paths, queue pair numbers, keys. Any thread.
#pragma once

#include <sys/random.h>

#include <cstdint>

#include "transport/base/check.h"

namespace pacecar {

inline uint32_t random_word() {
  uint32_t value = 0;
  PACECAR_CHECK(getrandom(&value, sizeof value, 0) == sizeof value);
  return value;
}

inline uint64_t random_u64() { return uint64_t{random_word()} << 32 | random_word(); }

}  // namespace pacecar
