// How a thread of the application lets others run when its poll has found nothing. While messages
// come it yields. When nothing has moved in the process for kIdle it sleeps for a moment instead:
// threads that only yield keep the kernel's own threads from running (seen on Linux 6.18), even the
// one that brings a link up again, for which all of them wait. Thread rule: any thread.
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
    // Its readers need not know more exactly, and other threads read it, too.
    if (now.ns() - moved_ns_.load(std::memory_order_relaxed) > kIdle.ns() / 8) {
      moved_ns_.store(now.ns(), std::memory_order_relaxed);
    }
  }

  static void give_way(Instant now) {
    if (now - Instant::from_ns(moved_ns_.load(std::memory_order_relaxed)) < kIdle) {
      return std::this_thread::yield();
    }
    // A thread may poll many connections in turn: it sleeps once for all of them.
    thread_local Instant slept;
    if (now - slept < kPolls) return;
    sleep_until(now + kNap, {});
    slept = clock_now();
  }

 private:
  // Late by kNap, a message after so long a pause is not noticeably later.
  static constexpr Duration kIdle = Duration::from_ms(5);
  static constexpr Duration kNap = Duration::from_us(50);
  static constexpr Duration kPolls = Duration::from_us(20);  // between two naps of a thread

  static inline std::atomic<int64_t> moved_ns_{0};
};

}  // namespace pacecar
