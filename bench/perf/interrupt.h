// Ctrl-C and SIGTERM while something is measured: the first asks it to end early, so that what was
// measured is printed and written; the second ends the process.
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

  // A signal has come since the newest Interrupt was made. Cheap to ask.
  static bool asked();

 private:
  struct sigaction before_interrupt_;
  struct sigaction before_terminate_;
};

// The first process of a container has no default for signals: without handlers, which this
// installs for SIGINT and SIGTERM, nothing but SIGKILL ends it. In others it does nothing. For the
// begin of main().
void end_by_signals_as_first_process();

}  // namespace pacecar::perf
