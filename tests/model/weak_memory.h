// Makes the headers that are included after this one use Relacy's atomics, which return any value
// that the C++ memory model allows, not only what this processor does. Include what those headers
// include before it; at their end `#undef std`.
#pragma once

#include <atomic>
#include <relacy/relacy.hpp>
#include <utility>

#undef new
#undef delete
#undef malloc
#undef calloc
#undef realloc
#undef free
#undef assert
#undef errno
#define errno (*__errno_location())  // as the C library has it
#undef memory_order_relaxed
#undef memory_order_consume
#undef memory_order_acquire
#undef memory_order_release
#undef memory_order_acq_rel
#undef memory_order_seq_cst

// Relacy replaces the others, not this one.
inline void operator delete(void* memory, size_t /*bytes*/) noexcept { operator delete(memory); }

namespace checked {

using namespace std;  // NOLINT: all but the atomics

constexpr rl::memory_order to_relacy(std::memory_order order) {
  switch (order) {
    case std::memory_order_relaxed: return rl::mo_relaxed;
    case std::memory_order_consume:
    case std::memory_order_acquire: return rl::mo_acquire;
    case std::memory_order_release: return rl::mo_release;
    case std::memory_order_acq_rel: return rl::mo_acq_rel;
    default: return rl::mo_seq_cst;
  }
}

template <typename T>
class atomic {
 public:
  atomic(T value = T()) : value_(value) {}  // NOLINT: implicit, as of the library
  T load(std::memory_order order = std::memory_order_seq_cst) const {
    return value_.load(to_relacy(order), $);
  }
  void store(T value, std::memory_order order = std::memory_order_seq_cst) {
    value_.store(value, to_relacy(order), $);
  }
  T exchange(T value, std::memory_order order = std::memory_order_seq_cst) {
    return value_($).exchange(value, to_relacy(order));
  }
  bool compare_exchange_weak(T& expected, T value,
                             std::memory_order order = std::memory_order_seq_cst) {
    return value_($).compare_exchange_weak(expected, value, to_relacy(order));
  }

 private:
  mutable rl::atomic<T> value_;
};

}  // namespace checked

#define std checked
