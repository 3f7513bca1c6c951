// ProgressDriver: the keeper, a thread that drives something while the application's threads do not
// (progress_state.h). It is the one of an engine, of a device of the verbs library, of a libfabric
// domain and of a group of one-sided operations. Sleeping. The keeper announces its sleep while it
// holds the lock of the driven object, then looks once more whether work was submitted, and sleeps.
// A thread that submits without the lock stores first and then calls wake(); so one of the two sees
// the other. A thread that changes a deadline calls note_call() with it after the turn.
// Thread rule: any thread, except as noted.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "transport/engine/doorbell.h"
#include "transport/engine/progress_state.h"

namespace pacecar {

// What a keeper drives. The keeper calls these.
class Driven {
 public:
  virtual Turn take_turn() = 0;  // Takes a turn, unless another thread is at it.
  // While callers take turns: whether the keeper must look after them, or else sleeps until wake().
  virtual bool needed() { return true; }
  // In a nap that has ended: callers have left work that was due.
  virtual bool callers_left_work() { return false; }
  // With the lock held, calls ProgressDriver::announce_sleep(until when, at the latest).
  virtual void prepare_to_sleep() = 0;
  // Some work was submitted that no turn has seen.
  virtual bool has_submissions() const { return false; }
  // Sleeps until `until`, or until `bell` or the driven object has something to read.
  virtual void sleep(Instant until, int bell) = 0;

 protected:
  ~Driven() = default;
};

class ProgressDriver {
 public:
  // `driven` outlives it, and is ready for start(). Errors: kSystem.
  static Result<std::unique_ptr<ProgressDriver>> make(Driven& driven, const ProgressPolicy& policy);
  // The first call starts the thread; a further one does nothing. Throws std::system_error.
  void start();
  // Ends the thread. The driver's owner calls it first: the thread reaches the driver through it.
  void stop();
  ~ProgressDriver() { stop(); }
  ProgressDriver(const ProgressDriver&) = delete;
  ProgressDriver& operator=(const ProgressDriver&) = delete;

  // A caller has taken a turn, or will until then. The keeper naps.
  void note_call(Instant now) { last_call_ns_.store(now.ns(), std::memory_order_relaxed); }
  // As above, and the next turn is due at `due`: a keeper that would sleep longer is woken.
  void note_call(Instant now, Instant due) {
    note_call(now);
    const int64_t until = asleep_until_ns_.load(std::memory_order_relaxed);
    if (until != 0 && due.ns() < until) bell_->ring();
  }
  // A caller takes turns from now on, until leave().
  void enter() { callers_.fetch_add(1, std::memory_order_relaxed); }
  void leave() { callers_.fetch_sub(1, std::memory_order_relaxed); }
  bool entered() const { return callers_.load(std::memory_order_relaxed) > 0; }
  Instant last_call() const {
    return Instant::from_ns(last_call_ns_.load(std::memory_order_relaxed));
  }
  // Work was submitted.
  void wake() {
    if (asleep_until_ns_.load() != 0) bell_->ring();
  }
  // The callers will not call for some time: the keeper takes over at once.
  void hand_over() {
    note_call(Instant());
    handed_over_ = true;
    bell_->ring();
  }

  void announce_sleep(Instant until);  // By Driven::prepare_to_sleep, with the lock held.
  void nap(Duration time);             // By Driven::callers_left_work.

 private:
  ProgressDriver(Driven& driven, const ProgressPolicy& policy, std::unique_ptr<Doorbell> bell);
  void run();
  void sleep();
  bool stops() const { return stop_.load(std::memory_order_relaxed); }

  Driven& driven_;
  const ProgressPolicy policy_;
  const std::unique_ptr<Doorbell> bell_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> handed_over_{false};
  std::atomic<int> callers_{0};
  std::atomic<int64_t> last_call_ns_{0};
  std::atomic<int64_t> asleep_until_ns_{0};  // 0: the keeper is awake, or naps
  Instant sleeps_until_;                     // used by the keeper only
  std::mutex starting_;                      // guards the start of thread_
  std::thread thread_;                       // the last member, as it uses the others
};

}  // namespace pacecar
