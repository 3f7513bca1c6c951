// The application's threads hand operations to the engine without a lock, on a list that it takes
// as a whole. Operation has members `next` and `connection`, which belong to the list until it is
// taken. Thread rule: any thread pushes; only the engine's current driver drains.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace pacecar {

template <typename Operation>
class Submissions {
 public:
  // The operation must not move until it has been taken.
  void push(uint32_t connection, Operation& operation) {
    operation.connection = connection;
    operation.next = newest_.load(std::memory_order_relaxed);
    while (!newest_.compare_exchange_weak(operation.next, &operation)) {
    }
  }

  bool empty() const { return newest_.load() == nullptr; }

  // Calls take(connection, operation) for every submitted operation, in the order of submission
  // within a connection; returns how many.
  template <typename Take>
  size_t drain(Take take) {
    if (newest_.load(std::memory_order_relaxed) == nullptr) return 0;
    Operation* oldest = nullptr;
    for (Operation* one = newest_.exchange(nullptr); one != nullptr;) {
      Operation* const next = std::exchange(one->next, oldest);
      oldest = std::exchange(one, next);
    }
    size_t count = 0;
    while (oldest != nullptr) {
      Operation& one = *oldest;
      oldest = one.next;  // before it may be done, and used again
      take(one.connection, one);
      ++count;
    }
    return count;
  }

 private:
  std::atomic<Operation*> newest_{nullptr};
};

}  // namespace pacecar
