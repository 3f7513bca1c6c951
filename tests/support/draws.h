// How much a test draws at random: all of it with TESTS_ALL=1, in a usual run a part.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace pacecar::test {

inline bool tests_all() {
  const char* const value = std::getenv("TESTS_ALL");
  return value != nullptr && std::string_view(value) == "1";
}

// How many of `all` worlds, seeds or rounds a test draws.
inline uint64_t draws(uint64_t all) { return tests_all() ? all : (all + 7) / 8; }

}  // namespace pacecar::test
