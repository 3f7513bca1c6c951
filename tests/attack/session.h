// One attack for its time, at its rate; what came of it. One thread.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <span>

#include "tests/attack/attack.h"
#include "tests/attack/callers.h"
#include "tests/attack/tap.h"

namespace pacecar::attack {

using Clock = std::chrono::steady_clock;

struct Budget {
  double rate;  // packets, or connections, per second; 0: as fast as it goes
  double seconds;
  const volatile std::sig_atomic_t* stopped;  // ends it at once when it is not 0
};

struct Outcome {
  uint64_t sent = 0;
  uint64_t lost = 0;   // the network did not take them; or a connection did not begin
  double seconds = 0;  // that it took
  double cpu_seconds = 0;
};

// Until both victims have been heard, or it takes too long: false.
bool listen_first(std::span<const Tap> taps, Knowledge& knowledge, Clock::duration limit);
Outcome run(Attack& attack, std::span<const Tap> taps, Knowledge& knowledge, Budget budget);
Outcome run(Callers& callers, Budget budget);

}  // namespace pacecar::attack
