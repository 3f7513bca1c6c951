// Events in order of time, then of insertion, so that a run is the same on every machine.
// Invariant: never more events than the capacity given at set-up; push() beyond it is our own bug.
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/base/check.h"
#include "transport/base/units.h"

namespace pacecar {

template <typename Payload>
class EventQueue {
 public:
  struct Event {
    Instant time;
    uint64_t sequence;
    Payload payload;
  };

  explicit EventQueue(size_t capacity) : capacity_(capacity) { heap_.reserve(capacity); }

  size_t size() const { return heap_.size(); }
  bool empty() const { return heap_.empty(); }
  // When the first event is due; Instant::never() if there is none.
  Instant next_time() const { return heap_.empty() ? Instant::never() : heap_.front().time; }

  void push(Instant time, const Payload& payload) {
    PACECAR_CHECK(heap_.size() < capacity_);
    heap_.push_back(Event{time, next_sequence_++, payload});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }

  Event pop() {
    PACECAR_CHECK(!heap_.empty());
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Event event = heap_.back();
    heap_.pop_back();
    return event;
  }

 private:
  static bool later(const Event& a, const Event& b) {
    return a.time != b.time ? a.time > b.time : a.sequence > b.sequence;
  }

  size_t capacity_;
  uint64_t next_sequence_ = 0;
  std::vector<Event> heap_;
};

}  // namespace pacecar
