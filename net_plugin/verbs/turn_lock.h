// The lock of a NIC, with priority for threads that call verbs over the keeper. The keeper polls
// and holds the lock nearly always; it would take a plain mutex again before a caller has woken up.
//
// Thread rule: any thread.
#pragma once

#include <sched.h>

#include <atomic>
#include <mutex>

namespace pacecar::ibverbs {

class TurnLock {
 public:
  void lock() {
    callers_.fetch_add(1, std::memory_order_relaxed);
    if (!spin([this] { return mutex_.try_lock(); })) mutex_.lock();
    callers_.fetch_sub(1, std::memory_order_relaxed);
  }
  // For the keeper, which callers need not wake.
  void lock_last() {
    const auto taken = [this] {
      return callers_.load(std::memory_order_relaxed) == 0 && mutex_.try_lock();
    };
    while (!spin(taken)) sched_yield();
  }
  // False while a caller has it.
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  // Tries for about a turn: sleeping and waking would take longer.
  static constexpr int kTries = 2000;

  template <typename Taken>
  static bool spin(Taken taken) {
    for (int i = 0; i < kTries; ++i) {
      if (taken()) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    return false;
  }

  std::mutex mutex_;
  std::atomic<int> callers_{0};  // who want it
};

}  // namespace pacecar::ibverbs
