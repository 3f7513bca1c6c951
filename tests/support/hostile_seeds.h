// The seeds that a test over hostile devices runs with.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace pacecar::test {

struct HostileSeeds {
  uint64_t first = 1;
  uint64_t count = 0;
};

// From 1 on, or as HOSTILE_SEEDS=FIRST:COUNT sets.
inline HostileSeeds hostile_seeds(uint64_t count) {
  HostileSeeds seeds{.count = count};
  const char* const chosen = std::getenv("HOSTILE_SEEDS");
  if (chosen != nullptr) std::sscanf(chosen, "%lu:%lu", &seeds.first, &seeds.count);
  return seeds;
}

}  // namespace pacecar::test
