#include "transport/base/ordered_copy.h"

#include <cstring>

namespace pacecar {
namespace {

// The compiler may neither merge nor reorder these stores; the processor (x86, or a release fence
// elsewhere) keeps their order.
[[gnu::always_inline]] inline void order_stores() {
#if defined(__x86_64__)
  asm volatile("" ::: "memory");
#else
  __atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

template <typename Word>
[[gnu::always_inline]] inline void store(uint8_t* destination, const uint8_t* source) {
  Word word;
  std::memcpy(&word, source, sizeof word);
  std::memcpy(destination, &word, sizeof word);
  order_stores();
}

// 32 bytes by one instruction where there is one; never torn below 8 bytes.
using Vector = long long __attribute__((vector_size(32)));

[[gnu::always_inline]] inline void copy(uint8_t* destination, const uint8_t* source,
                                        size_t length) {
  while (length > 0 && reinterpret_cast<uintptr_t>(destination) % 8 != 0) {
    store<uint8_t>(destination++, source++);
    --length;
  }
  while (length >= 128) {  // one LL128 line at a time
    store<Vector>(destination, source);
    store<Vector>(destination + 32, source + 32);
    store<Vector>(destination + 64, source + 64);
    store<Vector>(destination + 96, source + 96);
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
