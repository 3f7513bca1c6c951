#include "transport/sim/event_loop.h"

#include <algorithm>
#include <bit>

#include "transport/base/check.h"

namespace pacecar {

EventLoop::TimerId EventLoop::add_timer(EventSink& sink, uint32_t what) {
  PACECAR_CHECK(timers_.size() < kNone);
  timers_.push_back(Timer{.sink = &sink, .what = what});
  return static_cast<TimerId>(timers_.size() - 1);
}

void EventLoop::arm(TimerId timer, Instant time) {
  Timer& t = timers_[timer];
  if (t.time != Instant::never()) unlink(timer);
  PACECAR_CHECK(time >= now_);
  t.time = time;
  if (time != Instant::never()) link(timer);
}

uint32_t EventLoop::slot_of(uint64_t time) const {
  const uint64_t differing = time ^ base_;
  if (differing < kWindowSlots) return static_cast<uint32_t>(time & (kWindowSlots - 1));
  const auto level =
      (static_cast<unsigned>(std::bit_width(differing)) - kWindowBits - 1) / kDigitBits + 1;
  const auto digit = static_cast<uint32_t>(time >> shift_of(level)) & (kDigitSlots - 1);
  return kWindowSlots + (level - 1) * kDigitSlots + digit;
}

uint32_t EventLoop::first_slot(unsigned level) const {
  const uint32_t begin = level == 0 ? 0 : kWindowSlots + (level - 1) * kDigitSlots;
  const uint32_t first_word = begin / 64;
  const uint32_t end_word = first_word + (level == 0 ? kWindowSlots : kDigitSlots) / 64;
  for (uint32_t word = first_word; word < end_word; word = (word / 64 + 1) * 64) {
    // A level's words share a word of the summary with those of other levels.
    uint64_t words = summary_[word / 64] >> (word % 64);
    const uint32_t count = std::min(end_word - word, 64 - word % 64);
    if (count < 64) words &= (uint64_t{1} << count) - 1;
    if (words == 0) continue;
    const uint32_t found = word + static_cast<uint32_t>(std::countr_zero(words));
    return found * 64 + static_cast<uint32_t>(std::countr_zero(occupied_[found]));
  }
  return kNone;
}

uint64_t EventLoop::start_of(unsigned level, uint32_t slot) const {
  if (level == 0) return base_ + slot;
  const uint64_t digit = slot - kWindowSlots - (level - 1) * kDigitSlots;
  const unsigned shift = shift_of(level);
  const unsigned above = shift + kDigitBits;
  const uint64_t kept = above >= 64 ? 0 : base_ >> above << above;
  return kept | digit << shift;
}

void EventLoop::link(TimerId timer) {
  Timer& t = timers_[timer];
  const uint32_t index = slot_of(static_cast<uint64_t>(t.time.ns()));
  Slot& slot = slots_[index];
  t.previous = slot.last;
  t.next = kNone;
  if (slot.last == kNone) {
    slot.first = timer;
    occupied_[index / 64] |= uint64_t{1} << (index % 64);
    summary_[index / 4096] |= uint64_t{1} << (index / 64 % 64);
  } else {
    timers_[slot.last].next = timer;
  }
  slot.last = timer;
}

void EventLoop::unlink(TimerId timer) {
  const Timer& t = timers_[timer];
  const uint32_t index = slot_of(static_cast<uint64_t>(t.time.ns()));
  Slot& slot = slots_[index];
  (t.previous == kNone ? slot.first : timers_[t.previous].next) = t.next;
  (t.next == kNone ? slot.last : timers_[t.next].previous) = t.previous;
  if (slot.first == kNone) vacate(index);
}

void EventLoop::vacate(uint32_t slot) {
  slots_[slot] = Slot{};
  occupied_[slot / 64] &= ~(uint64_t{1} << (slot % 64));
  if (occupied_[slot / 64] == 0) summary_[slot / 4096] &= ~(uint64_t{1} << (slot / 64 % 64));
}

EventLoop::TimerId EventLoop::next_due(Instant limit) {
  for (;;) {
    const uint32_t due = first_slot(0);
    if (due != kNone) {
      const TimerId timer = slots_[due].first;
      return timers_[timer].time <= limit ? timer : kNone;
    }
    unsigned level = 1;
    while (level < kLevels && first_slot(level) == kNone) ++level;
    if (level == kLevels) return kNone;
    const uint32_t index = first_slot(level);
    const uint64_t start = start_of(level, index);
    if (start > static_cast<uint64_t>(limit.ns())) return kNone;
    TimerId timer = slots_[index].first;
    vacate(index);
    base_ = start;
    while (timer != kNone) {
      const TimerId next = timers_[timer].next;
      link(timer);
      timer = next;
    }
  }
}

Instant EventLoop::next_time() const {
  for (unsigned level = 0; level < kLevels; ++level) {
    const uint32_t index = first_slot(level);
    if (index == kNone) continue;
    Instant earliest = Instant::never();
    for (TimerId timer = slots_[index].first; timer != kNone; timer = timers_[timer].next) {
      earliest = std::min(earliest, timers_[timer].time);
      if (level == 0) break;  // all timers of this slot are due at the same time
    }
    return earliest;
  }
  return Instant::never();
}

void EventLoop::run(TimerId timer) {
  Timer& t = timers_[timer];
  unlink(timer);
  now_ = t.time;
  t.time = Instant::never();
  ++events_;
  t.sink->on_event(now_, t.what);
}

bool EventLoop::run_one() {
  const TimerId timer = next_due(Instant::never());
  if (timer == kNone) return false;
  run(timer);
  return true;
}

void EventLoop::run_until(Instant time) {
  PACECAR_CHECK(time >= now_);
  for (TimerId timer = next_due(time); timer != kNone; timer = next_due(time)) run(timer);
  now_ = time;
}

}  // namespace pacecar
