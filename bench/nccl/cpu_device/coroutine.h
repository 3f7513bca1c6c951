// Coroutines in the place of a GPU's blocks: where a block would spin on memory, it pauses, and one
// thread runs them all in turn. A Task may await other Tasks; whoever pauses, however deep, is
// where its Fiber continues. Thread rule: a Fiber is advanced by one thread at a time.
#pragma once

#include <coroutine>
#include <exception>
#include <span>
#include <utility>

namespace pacecar::nccl::cpu {

// A coroutine that begins when it is awaited, or when its Fiber first advances.
class [[nodiscard]] Task {
 public:
  struct promise_type {
    std::coroutine_handle<> awaited_by = std::noop_coroutine();
    std::exception_ptr error;

    struct Final {
      bool await_ready() const noexcept { return false; }
      std::coroutine_handle<> await_suspend(
          std::coroutine_handle<promise_type> ended) const noexcept {
        return ended.promise().awaited_by;
      }
      void await_resume() const noexcept {}
    };
    Task get_return_object() {
      return Task(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    Final final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() { error = std::current_exception(); }
  };
  using Handle = std::coroutine_handle<promise_type>;

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  Handle handle() const { return handle_; }

  bool await_ready() const noexcept { return false; }
  Handle await_suspend(std::coroutine_handle<> caller) noexcept {
    handle_.promise().awaited_by = caller;
    return handle_;
  }
  void await_resume() const {
    if (handle_.promise().error) std::rethrow_exception(handle_.promise().error);
  }

 private:
  explicit Task(Handle handle) : handle_(handle) {}
  Handle handle_;
};

// Runs a Task from pause to pause.
class Fiber {
 public:
  explicit Fiber(Task task) : task_(std::move(task)), next_(task_.handle()) {}
  Fiber(Fiber&&) noexcept = default;

  bool ended() const { return task_.handle().done(); }

  // Continues until the next pause or the end; throws what the Task throws. Must not have ended.
  void advance() {
    Fiber* const outer = std::exchange(running_, this);
    next_.resume();
    running_ = outer;
    if (ended()) task_.await_resume();
  }

  // What a Task awaits in order to give way.
  struct Pause {
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> paused) const noexcept { running_->next_ = paused; }
    void await_resume() const noexcept {}
  };

 private:
  static inline thread_local Fiber* running_ = nullptr;

  Task task_;
  std::coroutine_handle<> next_;
};

inline Fiber::Pause pause() { return {}; }

// Lets each continue; true when all have ended.
inline bool advance_all(std::span<Fiber> fibers) {
  bool all_ended = true;
  for (Fiber& one : fibers) {
    if (!one.ended()) one.advance();
    all_ended = all_ended && one.ended();
  }
  return all_ended;
}

}  // namespace pacecar::nccl::cpu
