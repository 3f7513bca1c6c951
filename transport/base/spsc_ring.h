// A bounded ring between two threads. Invariants: 0 <= tail - head <= capacity; slots in [head,
// tail) belong to the consumer, all others to the producer. Each side copies the other side's index
// and refreshes the copy only when the ring looks full (or empty), so that in the steady state the
// two indexes' cache lines do not bounce. Only slots of elements are touched. Thread rule: one
// thread pushes, one thread pops; empty() is exact for the consumer, a hint for everyone else.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

#include "transport/base/check.h"

namespace pacecar {

template <typename T>
class SpscRing {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // `capacity` is a power of two. The only allocation.
  explicit SpscRing(size_t capacity) : mask_(capacity - 1) {
    PACECAR_CHECK(std::has_single_bit(capacity));
    slots_ = std::make_unique_for_overwrite<Slot[]>(capacity);
  }

  // False when full.
  bool push(const T& value) {
    if (full()) return false;
    const size_t tail = tail_.load(std::memory_order_relaxed);
    ::new (&slots_[tail & mask_].element) T(value);
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }

  // For the producer: push() would refuse.
  bool full() {
    const size_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - seen_head_ > mask_) seen_head_ = head_.load(std::memory_order_acquire);
    return tail - seen_head_ > mask_;
  }

  // False when empty; `value` is then left as it was.
  bool pop(T& value) {
    const size_t head = head_.load(std::memory_order_relaxed);
    if (head == seen_tail_) {
      seen_tail_ = tail_.load(std::memory_order_acquire);
      if (head == seen_tail_) return false;
    }
    value = slots_[head & mask_].element;
    head_.store(head + 1, std::memory_order_release);
    return true;
  }

  bool empty() const {
    // The head first: read later it could have passed the tail read before it.
    const size_t head = head_.load(std::memory_order_acquire);
    return tail_.load(std::memory_order_acquire) == head;
  }

 private:
  static constexpr size_t kCacheLine = 64;
  union Slot {
    Slot() {}  // leaves the memory alone
    T element;
  };

  const size_t mask_;
  std::unique_ptr<Slot[]> slots_;
  alignas(kCacheLine) std::atomic<size_t> tail_{0};  // written by the producer
  size_t seen_head_ = 0;
  alignas(kCacheLine) std::atomic<size_t> head_{0};  // written by the consumer
  size_t seen_tail_ = 0;
};

}  // namespace pacecar
