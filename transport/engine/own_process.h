// Whether this process is the one that made an object, or was forked from it. A child shares its
// parent's sockets and device memory, and has none of its threads. Thread rule: any.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <stdexcept>

namespace pacecar {

class OwnProcess {
 public:
  bool forked() const { return made_after_ != forks_.load(std::memory_order_relaxed); }
  // Error: std::logic_error in a forked child.
  void check() const {
    if (forked()) [[unlikely]] {
      throw std::logic_error(
          "a forked process cannot use the NIC of its parent: open one after fork()");
    }
  }

 private:
  static inline std::atomic<uint32_t> forks_{0};  // from which this process descends
  static inline const int registered_ =
      pthread_atfork(nullptr, nullptr, [] { forks_.fetch_add(1, std::memory_order_relaxed); });

  const uint32_t made_after_ = forks_.load(std::memory_order_relaxed);
};

// A mutex that a forked child does not wait for: another thread may have held it.
struct OwnMutex : OwnProcess, private std::mutex {
  void lock() {
    check();
    std::mutex::lock();
  }
  using std::mutex::unlock;
};

}  // namespace pacecar
