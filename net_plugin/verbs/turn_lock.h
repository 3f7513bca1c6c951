// A NIC's lock. Threads that call verbs have priority over the keeper, which polls and mostly holds
// the lock: it would take a plain mutex again before a waiting caller has woken up. Any thread.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>

namespace pacecar::ibverbs {

class TurnLock {
 public:
  void lock() {
    callers_.fetch_add(1, std::memory_order_relaxed);
    for (int i = 0; i < kTries; ++i) {
      if (mutex_.try_lock()) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    mutex_.lock();
  }
  // For the keeper: false if any thread has the lock.
  bool try_lock() {
    if (!mutex_.try_lock()) return false;
    kept_ = true;
    return true;
  }
  void unlock() {
    const bool kept = std::exchange(kept_, false);
    mutex_.unlock();
    if (!kept) callers_.fetch_sub(1, std::memory_order_relaxed);
  }
  // A caller has the lock, or waits for it.
  bool called() const { return callers_.load(std::memory_order_relaxed) > 0; }

 private:
  // Tries for about the time of a turn, as sleeping and waking take longer.
  static constexpr int kTries = 2000;

  std::mutex mutex_;
  bool kept_ = false;            // the keeper has the lock; guarded by mutex_
  std::atomic<int> callers_{0};  // callers that have the lock or want it
};

}  // namespace pacecar::ibverbs
