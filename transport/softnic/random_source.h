// RandomSource: randomness as an argument: the operating system's generator in production, as keys
// and queue pair numbers must not be guessable; a seeded one in simulations, which must repeat.
#pragma once

#include <cstdint>

namespace pacecar {

struct RandomSource {
  uint32_t (*function)(void* context) = nullptr;
  void* context = nullptr;

  uint32_t operator()() const { return function(context); }
};

}  // namespace pacecar
