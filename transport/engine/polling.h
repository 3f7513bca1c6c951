// How a thread of the application lets others run when its poll has found nothing. While messages
// come it yields. When nothing has moved in the process for kIdle, it sleeps for a moment instead:
// threads that yield without end keep the kernel's threads from running (Linux 6.18), and a link
// that was down is then not brought up. Thread rule: any thread.
#pragma once

#include <atomic>
#include <thread>

#include "transport/base/units.h"
#include "transport/engine/own_thread.h"

namespace pacecar {

class Polling {
 public:
  // A message or packet has come or gone.
  static void note_moved(Instant now) {
    // Rarely, as other threads read it.
    if (now.ns() - moved_ns_.load(std::memory_order_relaxed) > kIdle.ns() / 8) {
      moved_ns_.store(now.ns(), std::memory_order_relaxed);
    }
  }

  static void give_way(Instant now) {
    if (now - Instant::from_ns(moved_ns_.load(std::memory_order_relaxed)) < kIdle) {
      return std::this_thread::yield();
    }
    // A thread that polls many connections in turn sleeps once in a round.
    thread_local Instant slept;
    if (now - slept < kPolls) return;
    sleep_until(now + kNap, {});
    slept = clock_now();
  }

 private:
  static constexpr Duration kIdle = Duration::from_ms(5);
  static constexpr Duration kNap = Duration::from_us(50);  // a small part of kIdle
  static constexpr Duration kPolls = Duration::from_us(20);  // between two naps of a thread

  static inline std::atomic<int64_t> moved_ns_{0};
};

}  // namespace pacecar
