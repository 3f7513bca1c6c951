// Randomness as an argument: keys and queue pair numbers must not be guessable in production (the
// engine passes the operating system's generator) and must repeat in a simulation (a seeded one).
#pragma once

#include <cstdint>

namespace pacecar {

struct RandomSource {
  uint32_t (*function)(void* context) = nullptr;
  void* context = nullptr;

  uint32_t operator()() const { return function(context); }
};

}  // namespace pacecar
