// Which seeds a test over hostile devices runs through.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace pacecar::test {

struct HostileSeeds {
  uint64_t first = 1;
  uint64_t count = 0;
};

// From 1 on, or what HOSTILE_SEEDS=FIRST:COUNT says.
inline HostileSeeds hostile_seeds(uint64_t count) {
  HostileSeeds seeds{.count = count};
  const char* const chosen = std::getenv("HOSTILE_SEEDS");
  if (chosen != nullptr) std::sscanf(chosen, "%lu:%lu", &seeds.first, &seeds.count);
  return seeds;
}

}  // namespace pacecar::test
