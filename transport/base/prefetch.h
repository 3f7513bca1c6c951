// Fetches an object into the cache before it is needed, where it is known early and memory is slow.
// A hint: the object need not be alive.
#pragma once

#include <cstddef>

namespace pacecar {

inline void prefetch(const void* object, size_t bytes) {
  constexpr size_t kLine = 64;
  for (size_t at = 0; at < bytes; at += kLine) {
    __builtin_prefetch(static_cast<const char*>(object) + at);
  }
}

template <typename T>
void prefetch(const T& object) {
  prefetch(&object, sizeof object);
}

}  // namespace pacecar
