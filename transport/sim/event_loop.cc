#include "transport/sim/event_loop.h"

#include <algorithm>

#include "transport/base/check.h"

namespace pacecar {

EventLoop::TimerId EventLoop::add_timer(EventSink& sink, uint32_t what) {
  PACECAR_CHECK(timers_.size() < kNone);
  timers_.push_back({.sink = &sink, .what = what});
  heap_.reserve(timers_.capacity());
  return static_cast<TimerId>(timers_.size() - 1);
}

void EventLoop::arm(TimerId timer, Instant time) {
  PACECAR_CHECK(time >= now_);
  uint32_t place = timers_[timer].place;
  if (time == Instant::never()) {
    if (place != kNone) remove(place);
    return;
  }
  if (place == kNone) {
    place = static_cast<uint32_t>(heap_.size());
    heap_.emplace_back();
  }
  sift(place, {time, armings_++, timer});
}

void EventLoop::sift(uint32_t place, const Armed& armed) {
  constexpr uint32_t kChildren = 4;
  for (; place > 0; place = (place - 1) / kChildren) {
    const Armed& parent = heap_[(place - 1) / kChildren];
    if (!armed.before(parent)) break;
    put(place, parent);
  }
  const auto size = static_cast<uint32_t>(heap_.size());
  for (;;) {
    uint32_t first = place * kChildren + 1;
    const uint32_t end = std::min(first + kChildren, size);
    for (uint32_t child = first + 1; child < end; ++child) {
      if (heap_[child].before(heap_[first])) first = child;
    }
    if (first >= size || !heap_[first].before(armed)) break;
    put(place, heap_[first]);
    place = first;
  }
  put(place, armed);
}

void EventLoop::remove(uint32_t place) {
  timers_[heap_[place].timer].place = kNone;
  const Armed last = heap_.back();
  heap_.pop_back();
  if (place < heap_.size()) sift(place, last);
}

bool EventLoop::run_one() {
  if (heap_.empty()) return false;
  const Armed due = heap_.front();
  remove(0);
  now_ = due.time;
  ++events_;
  timers_[due.timer].sink->on_event(now_, timers_[due.timer].what);
  return true;
}

void EventLoop::run_until(Instant time) {
  PACECAR_CHECK(time >= now_);
  while (next_time() <= time && run_one()) {
  }
  now_ = time;
}

}  // namespace pacecar
