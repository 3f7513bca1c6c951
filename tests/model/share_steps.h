// For a model of every interleaving of processes that share memory: each process is a fiber, which
// pauses before each access to a word that several processes use. The model then picks the fiber
// that runs next.
//
// One thread. Accesses to a word of one process alone do not pause: their order cannot matter.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace pacecar::model {

// A function that can be paused and resumed in the middle, or destroyed there.
class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs or resumes the function until it pauses or ends.
  void run();
  bool ended() const { return ended_; }
  // Called inside a fiber; outside of fibers it does nothing.
  static void pause();

 private:
  static constexpr size_t kStack = 64U << 10;

  static void enter();

  static Fiber* current_;

  const std::function<void()> body_;
  const std::unique_ptr<char[]> stack_;
  ucontext_t own_;
  ucontext_t caller_;
  bool ended_ = false;
};

// Stands in for std::atomic<uint64_t>.
class SteppedWord {
 public:
  static inline const SteppedWord* shared_begin = nullptr;  // words that several processes use
  static inline const SteppedWord* shared_end = nullptr;

  uint64_t load() const {
    step();
    return value_;
  }
  void store(uint64_t value) {
    step();
    value_ = value;
  }
  uint64_t fetch_add(uint64_t more) {
    step();
    value_ += more;
    return value_ - more;
  }
  bool compare_exchange_strong(uint64_t& expected, uint64_t desired) {
    step();
    const bool same = value_ == expected;
    if (same) value_ = desired;
    if (!same) expected = value_;
    return same;
  }
  uint64_t value() const { return value_; }

 private:
  void step() const {
    if (this >= shared_begin && this < shared_end) Fiber::pause();
  }

  uint64_t value_ = 0;
};

}  // namespace pacecar::model
