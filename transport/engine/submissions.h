// How an application's threads hand operations to the engine without a lock: one bounded ring per
// connection, and a doorbell bit per connection that says "look into my ring".
//
// Thread rule: one thread pushes into a connection's ring; only the engine's current driver drains.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/base/spsc_ring.h"

namespace pacecar {

template <typename Operation>
class Submissions {
 public:
  // For connections 0 .. connections-1, `depth` operations each (a power of two).
  Submissions(uint32_t connections, uint32_t depth)
      : depth_(depth), rings_(connections), bells_((connections + 63) / 64) {}

  // Both only while nobody drains.
  void attach(uint32_t connection) {
    rings_[connection] = std::make_unique<SpscRing<Operation>>(depth_);
  }
  void detach(uint32_t connection) { rings_[connection].reset(); }

  // False when the ring is full.
  bool push(uint32_t connection, const Operation& operation) {
    if (!rings_[connection]->push(operation)) return false;
    bells_[connection / 64].fetch_or(uint64_t{1} << (connection % 64));
    rung_.store(true);
    return true;
  }

  bool empty() const { return !rung_.load(); }

  // Calls take(connection, operation) for every operation there is; returns how many.
  template <typename Take>
  size_t drain(Take take) {
    if (!rung_.load(std::memory_order_relaxed)) return 0;
    rung_.store(false);  // before the bells are read: whoever rings one later sets it again
    size_t count = 0;
    for (uint32_t word = 0; word < bells_.size(); ++word) {
      if (bells_[word].load(std::memory_order_relaxed) == 0) continue;
      for (uint64_t bits = bells_[word].exchange(0); bits != 0; bits &= bits - 1) {
        const uint32_t connection = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
        Operation operation;
        while (rings_[connection] != nullptr && rings_[connection]->pop(operation)) {
          take(connection, operation);
          ++count;
        }
      }
    }
    return count;
  }

 private:
  uint32_t depth_;
  std::vector<std::unique_ptr<SpscRing<Operation>>> rings_;
  std::vector<std::atomic<uint64_t>> bells_;
  std::atomic<bool> rung_{false};  // some bell may be
};

}  // namespace pacecar
