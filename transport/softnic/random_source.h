// RandomSource: randomness as an argument. In production, keys and queue pair numbers must not be
// guessable: the engine passes the operating system's generator. In a simulation they must repeat:
// it passes a seeded generator.
#pragma once

#include <cstdint>

namespace pacecar {

struct RandomSource {
  uint32_t (*function)(void* context) = nullptr;
  void* context = nullptr;

  uint32_t operator()() const { return function(context); }
};

}  // namespace pacecar
