#include "transport/base/polled_memory.h"

#include <cstring>

namespace pacecar {
namespace {

template <std::unsigned_integral Word>
[[gnu::always_inline]] inline void store(uint8_t* destination, const uint8_t* source) {
  Word word;
  std::memcpy(&word, source, sizeof word);
  store_polled(destination, word);
}

// 32 bytes, never torn below 8; the last 8, where flags are, become visible after the others.
[[gnu::always_inline]] inline void store_vector(uint8_t* destination, const uint8_t* source) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)  // which does not know this store
  using Vector = long long __attribute__((vector_size(32)));
  Vector vector;
  std::memcpy(&vector, source, sizeof vector);
  asm volatile("" ::: "memory");  // the processor keeps the order of stores
  std::memcpy(destination, &vector, sizeof vector);
#else
  for (size_t at = 0; at < 24; at += 8) {
    uint64_t word;
    std::memcpy(&word, source + at, sizeof word);
    __atomic_store_n(reinterpret_cast<uint64_t*>(destination + at), word, __ATOMIC_RELAXED);
  }
  store<uint64_t>(destination + 24, source + 24);
#endif
}

[[gnu::always_inline]] inline void copy(uint8_t* destination, const uint8_t* source,
                                        size_t length) {
  while (length > 0 && reinterpret_cast<uintptr_t>(destination) % 8 != 0) {
    store<uint8_t>(destination++, source++);
    --length;
  }
  while (length >= 128) {  // one LL128 line at a time
    store_vector(destination, source);
    store_vector(destination + 32, source + 32);
    store_vector(destination + 64, source + 64);
    store_vector(destination + 96, source + 96);
    destination += 128;
    source += 128;
    length -= 128;
  }
  while (length >= 8) {
    store<uint64_t>(destination, source);
    destination += 8;
    source += 8;
    length -= 8;
  }
  while (length > 0) {
    store<uint8_t>(destination++, source++);
    --length;
  }
}

#if defined(__x86_64__)

[[gnu::target("avx2")]] void copy_by_avx2(uint8_t* destination, const uint8_t* source,
                                          size_t length) {
  copy(destination, source, length);
}

const bool kHasAvx2 = __builtin_cpu_supports("avx2") != 0;

#endif

}  // namespace

void ordered_copy(uint8_t* destination, const uint8_t* source, size_t length) {
#if defined(__x86_64__)
  if (kHasAvx2) return copy_by_avx2(destination, source, length);
#endif
  copy(destination, source, length);
}

}  // namespace pacecar
