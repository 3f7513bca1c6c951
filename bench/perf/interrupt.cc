#include "bench/perf/interrupt.h"

namespace pacecar::perf {
namespace {
volatile std::sig_atomic_t signal_came = 0;
}  // namespace

Interrupt::Interrupt() {
  signal_came = 0;
  struct sigaction action {};
  action.sa_handler = [](int) { signal_came = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigaction(SIGINT, &action, &before_interrupt_);
  sigaction(SIGTERM, &action, &before_terminate_);
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &before_interrupt_, nullptr);
  sigaction(SIGTERM, &before_terminate_, nullptr);
}

bool Interrupt::asked() { return signal_came != 0; }

}  // namespace pacecar::perf
