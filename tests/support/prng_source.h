// A RandomSource that draws from a Prng, which outlives it.
#pragma once

#include "transport/base/prng.h"
#include "transport/softnic/random_source.h"

namespace pacecar::test {

inline RandomSource random_source(Prng& prng) {
  return {[](void* own) { return static_cast<uint32_t>(static_cast<Prng*>(own)->next_u64()); },
          &prng};
}

}  // namespace pacecar::test
