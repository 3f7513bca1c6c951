// Fields of NCCL's structures, at byte offsets, in memory that other threads and processes write.
#pragma once

#include <cstddef>
#include <cstring>

#include "bench/nccl/cpu_device/memory.h"

namespace pacecar::nccl::cpu {

template <typename T>
T field(const char* structure, size_t offset) {
  T value;
  std::memcpy(&value, structure + offset, sizeof(value));
  return value;
}

template <typename T>
void set_field(char* structure, size_t offset, T value) {
  std::memcpy(structure + offset, &value, sizeof(value));
}

// A pointer, to where the device finds its target; nullptr stays nullptr.
template <typename T = char>
T* pointer(const char* structure, size_t offset) {
  return view(field<T*>(structure, offset));
}

template <typename T>
T load_acquire(const T* from) {
  return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}
template <typename T>
void store_release(T* to, T value) {
  __atomic_store_n(to, value, __ATOMIC_RELEASE);
}

}  // namespace pacecar::nccl::cpu
