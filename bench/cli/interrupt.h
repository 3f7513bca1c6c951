// Ctrl-C and SIGTERM during a measurement: the first one ends the measurement early, so that its
// results are printed and written; the second one ends the process, or is ignored.
#pragma once

#include <unistd.h>

#include <csignal>

namespace pacecar::cli {

// Records the first signal during its life. One at a time.
class Interrupt {
 public:
  // What a second signal of the same kind does: ends the process, or nothing, for those whose
  // clean-up must not be cut short.
  enum class Second { kEnds, kIgnored };

  explicit Interrupt(Second second = Second::kEnds) {
    came_ = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { came_ = 1; };
    // Where no second signal ends the process, the first one ends a write that blocks.
    action.sa_flags = second == Second::kEnds ? SA_RESTART | static_cast<int>(SA_RESETHAND) : 0;
    sigaction(SIGINT, &action, &before_interrupt_);
    sigaction(SIGTERM, &action, &before_terminate_);
  }
  ~Interrupt() {
    sigaction(SIGINT, &before_interrupt_, nullptr);
    sigaction(SIGTERM, &before_terminate_, nullptr);
  }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // A signal has come since the newest Interrupt was made. One load.
  static bool asked() { return came_ != 0; }

 private:
  static inline volatile std::sig_atomic_t came_ = 0;

  struct sigaction before_interrupt_;
  struct sigaction before_terminate_;
};

// The kernel ignores SIGINT and SIGTERM for the first process of a container, unless it has
// handlers. Called at the start of main().
inline void end_by_signals_as_first_process() {
  if (getpid() != 1) return;
  constexpr int kEndedBySignal = 128;  // as in shells
  for (const int signal : {SIGINT, SIGTERM}) {
    std::signal(signal, [](int number) { _exit(kEndedBySignal + number); });
  }
}

}  // namespace pacecar::cli
