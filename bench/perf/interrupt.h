// Ctrl-C and SIGTERM during a measurement: the first one ends the measurement early, so that its
// results are printed and written; the second one ends the process.
#pragma once

#include <csignal>

namespace pacecar::perf {

// Records the first signal during its life. One at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // A signal has come since the newest Interrupt was made. One load.
  static bool asked();

 private:
  struct sigaction before_interrupt_;
  struct sigaction before_terminate_;
};

}  // namespace pacecar::perf
