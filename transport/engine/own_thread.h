// How our own threads begin, and how the threads that poll NICs sleep.
#pragma once

#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>

#include <csignal>
#include <ctime>
#include <span>

#include "transport/base/units.h"
#include "transport/engine/clock.h"

namespace pacecar {

// The longest sleep if nothing wakes it: a decorator holds packets back, or no descriptor exists.
inline constexpr Duration kBlindSleep = Duration::from_us(100);

// Returns earlier when one of the descriptors is readable. False: a signal has come.
inline bool sleep_until(Instant deadline, std::span<pollfd> waiting) {
  const Instant now = clock_now();
  if (deadline <= now) return true;
  const int64_t ns = (deadline - now).ns();
  const timespec timeout{ns / 1'000'000'000, ns % 1'000'000'000};
  return ppoll(waiting.data(), waiting.size(), deadline == Instant::never() ? nullptr : &timeout,
               nullptr) >= 0;
}

// Called by a thread of ours first.
inline void begin_thread(const char* name) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // the application gets all signals
  prctl(PR_SET_TIMERSLACK, 1);                // sleeps end in time, not up to 50 us later
  pthread_setname_np(pthread_self(), name);
}

}  // namespace pacecar
