// The virtual clock of a simulation and its timers. An event is a timer that falls due; timers are
// made at set-up, so the memory of a run is known before it starts. Order: by time, then by the
// order of arming. So a run is the same on every machine. Armed timers are in a heap, and each
// knows its place there: arming, moving and cancelling cost O(log n). Thread rule: one thread.
#pragma once

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

  EventLoop() = default;
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Set-up only. The sink outlives the loop's last run.
  TimerId add_timer(EventSink& sink, uint32_t what);

  Instant now() const { return now_; }
  // Moves the timer when it is armed; Instant::never() cancels. Not before now().
  void arm(TimerId timer, Instant time);
  void cancel(TimerId timer) { arm(timer, Instant::never()); }
  // Never when not armed.
  Instant deadline(TimerId timer) const {
    const uint32_t place = timers_[timer].place;
    return place == kNone ? Instant::never() : heap_[place].time;
  }

  // When the next event is due; Instant::never() if none is.
  Instant next_time() const { return heap_.empty() ? Instant::never() : heap_.front().time; }
  bool run_one();                // Runs the next event; false if there is none.
  void run_until(Instant time);  // Runs every event due until then, and moves the clock there.
  uint64_t events() const { return events_; }

 private:
  static constexpr uint32_t kNone = ~0U;

  struct Timer {
    EventSink* sink = nullptr;
    uint32_t what = 0;
    uint32_t place = kNone;  // in the heap; kNone: it is not armed
  };
  struct Armed {
    Instant time;
    uint64_t number = 0;  // of its arming
    TimerId timer = 0;

    bool before(const Armed& other) const {
      return time != other.time ? time < other.time : number < other.number;
    }
  };

  void put(uint32_t place, const Armed& armed) {
    heap_[place] = armed;
    timers_[armed.timer].place = place;
  }
  // Puts it into a place that is free, or rather above or below that.
  void sift(uint32_t place, const Armed& armed);
  void remove(uint32_t place);

  Instant now_;
  uint64_t events_ = 0;
  uint64_t armings_ = 0;
  std::vector<Timer> timers_;
  std::vector<Armed> heap_;  // the children of i are 4 i + 1 to 4 i + 4, and none is before i
};

}  // namespace pacecar
