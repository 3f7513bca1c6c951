// The application's threads hand operations to the engine without a lock: by one bounded ring per
// connection, and one doorbell bit per connection that is set when its ring has operations.
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
      : depth_(depth),
        rings_(connections),
        bells_((connections + 63) / 64),
        floors_((bells_.size() + 63) / 64) {}

  // Do not call these two during a drain.
  void attach(uint32_t connection) {
    rings_[connection] = std::make_unique<SpscRing<Operation>>(depth_);
  }
  void detach(uint32_t connection) { rings_[connection].reset(); }

  // False when the ring is full.
  bool push(uint32_t connection, const Operation& operation) {
    return push_made(connection, [&operation](Operation& place) { place = operation; });
  }

  // As push(); make(operation) fills the operation in place.
  template <typename Make>
  bool push_made(uint32_t connection, Make make) {
    if (!rings_[connection]->push_made(make)) return false;
    // If the connection's bit is still set, so are the bits above it, and the engine has yet to
    // drain.
    if (ring(bells_, connection)) return true;
    ring(floors_, connection / 64);
    rung_.store(true);
    return true;
  }

  bool empty() const { return !rung_.load(); }

  // Calls take(connection, operation) for every submitted operation; returns how many.
  template <typename Take>
  size_t drain(Take take) {
    if (!rung_.load(std::memory_order_relaxed)) return 0;
    rung_.store(false);  // before the bells are read: a later ring sets it again
    size_t count = 0;
    for (uint32_t place = 0; place < floors_.size(); ++place) {
      each_rung(floors_, place, [&](uint32_t floor) {
        each_rung(bells_, floor, [&](uint32_t connection) {
          const auto taking = [&](const Operation& operation) { take(connection, operation); };
          while (rings_[connection] != nullptr && rings_[connection]->pop_used(taking)) ++count;
        });
      });
    }
    return count;
  }

 private:
  using Bells = std::vector<std::atomic<uint64_t>>;

  // True: it had been rung before.
  static bool ring(Bells& bells, uint32_t number) {
    const uint64_t bit = uint64_t{1} << (number % 64);
    return (bells[number / 64].fetch_or(bit) & bit) != 0;
  }
  // Clears one word of bells, and calls answer(number) for each that was rung.
  template <typename Answer>
  static void each_rung(Bells& bells, uint32_t word, Answer answer) {
    if (bells[word].load(std::memory_order_relaxed) == 0) return;
    for (uint64_t bits = bells[word].exchange(0); bits != 0; bits &= bits - 1) {
      answer(word * 64 + static_cast<uint32_t>(std::countr_zero(bits)));
    }
  }

  uint32_t depth_;
  std::vector<std::unique_ptr<SpscRing<Operation>>> rings_;
  Bells bells_;                    // by connection
  Bells floors_;                   // by word of bells_: some of its bells may be rung
  std::atomic<bool> rung_{false};  // some bell may be rung
};

}  // namespace pacecar
