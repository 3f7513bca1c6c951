// A bounded first-in first-out queue that allocates once, for one thread. A full queue refuses
// (back-pressure); it never grows. Only slots of elements are touched, and an empty queue starts at
// the front again, so a queue that is never long uses little cache.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include "transport/base/check.h"

namespace pacecar {

template <typename T>
class FixedQueue {
 public:
  explicit FixedQueue(size_t capacity)
      : capacity_(capacity),
        mask_(std::bit_ceil(std::max<size_t>(capacity, 1)) - 1),
        slots_(std::make_unique_for_overwrite<Slot[]>(mask_ + 1)) {}

  size_t size() const { return tail_ - head_; }
  size_t capacity() const { return capacity_; }
  bool empty() const { return head_ == tail_; }
  bool full() const { return size() == capacity_; }

  // False when full; `value` is then left as it was.
  bool push(T&& value) {
    if (full()) return false;
    Slot& slot = slots_[tail_++ & mask_];
    if constexpr (kBare) {
      std::construct_at(&slot.element, std::move(value));
    } else {
      slot.element = std::move(value);
    }
    return true;
  }
  bool push(const T& value) { return !full() && push(T(value)); }

  // The oldest element; the queue is not empty.
  T& front() { return (*this)[0]; }
  const T& front() const { return (*this)[0]; }

  void pop_front() {
    PACECAR_CHECK(!empty());
    // Releases what the element owns now, not when its slot is used again.
    if constexpr (!kBare) front() = T();
    if (++head_ == tail_) head_ = tail_ = 0;
  }

  void clear() {
    while (!empty()) pop_front();
  }

  // Calls `matches` once for each element, and removes each element for which it is true.
  template <typename Matches>
  void erase_if(Matches matches) {
    for (size_t left = size(); left > 0; --left) {
      T one = std::move(front());
      pop_front();
      if (!matches(one)) push(std::move(one));
    }
  }

  // The element `index` places behind the oldest; index < size().
  T& operator[](size_t index) {
    PACECAR_CHECK(index < size());
    return slots_[(head_ + index) & mask_].element;
  }
  const T& operator[](size_t index) const {
    PACECAR_CHECK(index < size());
    return slots_[(head_ + index) & mask_].element;
  }

 private:
  static constexpr bool kBare = std::is_trivially_destructible_v<T>;
  union BareSlot {
    BareSlot() {}  // leaves the memory alone
    T element;
  };
  struct OwningSlot {
    T element;
  };
  using Slot = std::conditional_t<kBare, BareSlot, OwningSlot>;

  size_t capacity_;
  size_t mask_;
  std::unique_ptr<Slot[]> slots_;
  size_t head_ = 0;
  size_t tail_ = 0;
};

}  // namespace pacecar
