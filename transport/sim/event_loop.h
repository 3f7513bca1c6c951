// The virtual clock of a simulation and its timers. An event is a timer that falls due; timers are
// made at set-up, so the memory of a run is known before it starts.
//
// Order: by time, then by the order of arming. So a run is the same on every machine.
//
// A wheel in levels, because nearly all timers are due within microseconds: a slot of level 0 is
// one nanosecond of the current window of 16,384; a slot of level n + 1 spans all of level n. A
// slot is a list in the order of arming, and a list that moves down keeps its order before anything
// can be armed behind it. Arming, moving and cancelling cost O(1).
// Invariant: a timer sits at the level of the highest digit in which its time differs from base_,
// so every timer of a level is due before all of the levels above.
// Thread rule: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "transport/base/units.h"

namespace pacecar {

class EventSink {
 public:
  virtual ~EventSink() = default;
  // A timer of this sink is due. `what` is as given to add_timer.
  virtual void on_event(Instant now, uint32_t what) = 0;
};

class EventLoop {
 public:
  using TimerId = uint32_t;

  EventLoop() : slots_(kSlots) {}
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Set-up only. The sink outlives the loop's last run.
  TimerId add_timer(EventSink& sink, uint32_t what);

  Instant now() const { return now_; }
  // Moves the timer when it is armed; Instant::never() cancels. Not before now().
  void arm(TimerId timer, Instant time);
  void cancel(TimerId timer) { arm(timer, Instant::never()); }
  // Never when not armed.
  Instant deadline(TimerId timer) const { return timers_[timer].time; }

  // When the next event is due; Instant::never() if none is.
  Instant next_time() const;
  // Runs the next event; false if there is none.
  bool run_one();
  // Runs every event due until then, and moves the clock there.
  void run_until(Instant time);
  // Events that have run so far.
  uint64_t events() const { return events_; }

 private:
  static constexpr unsigned kWindowBits = 14;
  static constexpr unsigned kDigitBits = 10;
  static constexpr unsigned kLevels = 6;
  static_assert(kWindowBits + (kLevels - 1) * kDigitBits == 64, "the levels cover every Instant");
  static constexpr uint32_t kWindowSlots = 1U << kWindowBits;
  static constexpr uint32_t kDigitSlots = 1U << kDigitBits;
  static constexpr uint32_t kSlots = kWindowSlots + (kLevels - 1) * kDigitSlots;
  static constexpr uint32_t kNone = ~0U;

  struct Timer {
    Instant time = Instant::never();
    EventSink* sink = nullptr;
    uint32_t what = 0;
    uint32_t next = kNone;
    uint32_t previous = kNone;
  };
  struct Slot {
    uint32_t first = kNone;
    uint32_t last = kNone;
  };

  static unsigned shift_of(unsigned level) {
    return level == 0 ? 0 : kWindowBits + (level - 1) * kDigitBits;
  }
  uint32_t slot_of(uint64_t time) const;
  // The first occupied slot of a level, kNone if there is none.
  uint32_t first_slot(unsigned level) const;
  // Where the span of a level's slot begins.
  uint64_t start_of(unsigned level, uint32_t slot) const;
  void link(TimerId timer);
  void unlink(TimerId timer);
  void vacate(uint32_t slot);
  // The next timer that is due until `limit`, kNone if there is none; moves lists down on the way.
  TimerId next_due(Instant limit);
  void run(TimerId timer);

  Instant now_;
  uint64_t base_ = 0;  // begin of the current window; not later than now_ between calls
  uint64_t events_ = 0;
  std::vector<Timer> timers_;
  std::vector<Slot> slots_;
  // One bit per slot, and one bit per word of those.
  std::array<uint64_t, kSlots / 64> occupied_{};
  std::array<uint64_t, (kSlots / 64 + 63) / 64> summary_{};
};

}  // namespace pacecar
