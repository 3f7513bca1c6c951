// A first-in first-out list of the objects that have work to do, as small numbers, each at most
// once. Bounded by the range of the numbers, so that adding never fails. For one thread.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "transport/base/fixed_queue.h"

namespace pacecar {

class WorkList {
 public:
  // Numbers 0 .. count-1.
  explicit WorkList(size_t count) : queue_(count), listed_(count) {}
  // Allocates if the numbers below `count` are not allowed yet.
  void widen(size_t count) {
    if (count <= listed_.size()) return;
    WorkList wide(std::bit_ceil(count));
    while (!empty()) wide.add(take());
    *this = std::move(wide);
  }

  bool empty() const { return queue_.empty(); }
  bool listed(uint32_t number) const { return listed_[number] != 0; }
  size_t size() const { return queue_.size(); }

  void add(uint32_t number) {
    if (listed(number)) return;
    listed_[number] = 1;
    queue_.push(number);
  }
  uint32_t front() const { return queue_.front(); }
  // `index` places behind the front; index < size().
  uint32_t operator[](size_t index) const { return queue_[index]; }
  uint32_t take() {
    const uint32_t number = queue_.front();
    queue_.pop_front();
    listed_[number] = 0;
    return number;
  }
  void remove(uint32_t number) {
    if (!listed(number)) return;
    listed_[number] = 0;
    queue_.erase_if([&](uint32_t other) { return other == number; });
  }

 private:
  FixedQueue<uint32_t> queue_;
  std::vector<uint8_t> listed_;  // by number; bytes, because they are tested for each packet
};

}  // namespace pacecar
