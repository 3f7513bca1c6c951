// How tests wait: they leave the processors to the awaited threads, and only a hang ends a wait.
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

namespace pacecar::test {

// A wait counts as a hang after kWaitHangs, a case or its process after twice as long. That says
// nothing about speed: a busy machine may run a test for a tenth of the time.
inline constexpr std::chrono::seconds kWaitHangs{200};
inline constexpr std::chrono::seconds kCaseHangs = 2 * kWaitHangs;

// A polling thread pauses after each turn that found nothing; it has `waited` since the last turn
// that found something. It spins at first, so that events still meet in any order.
inline void pause_after(std::chrono::nanoseconds waited) {
  constexpr std::chrono::microseconds kSpins{100};
  constexpr std::chrono::microseconds kSleeps{50};
  if (waited < kSpins) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(kSleeps);
  }
}

class Waiting {
 public:
  using Clock = std::chrono::steady_clock;

  // A turn has found something.
  void restart() { begin_ = Clock::now(); }
  void pause() const { pause_after(Clock::now() - begin_); }
  bool hangs() const { return Clock::now() - begin_ > kWaitHangs; }

 private:
  Clock::time_point begin_ = Clock::now();
};

// Polls until `done`; false: it hangs.
template <typename Done>
bool eventually(Done done) {
  const Waiting waiting;
  while (!done()) {
    if (waiting.hangs()) return false;
    waiting.pause();
  }
  return true;
}

}  // namespace pacecar::test
