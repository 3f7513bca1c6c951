// Runs one attack for its time, at its rate. One thread.
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
  double rate;  // packets or connections per second; 0: no limit
  double seconds;
  const volatile std::sig_atomic_t* stopped;  // not 0: end at once
};

struct Outcome {
  uint64_t sent = 0;
  uint64_t lost = 0;   // packets that the network did not take, connections that could not be begun
  double seconds = 0;  // the attack's duration
  double cpu_seconds = 0;
};

// Captures until packets of both victims are known; false: `limit` passed before.
bool capture_first(std::span<const Tap> taps, Knowledge& knowledge, Clock::duration limit);
Outcome run(Attack& attack, std::span<const Tap> taps, Knowledge& knowledge, Budget budget);
Outcome run(Callers& callers, Budget budget);

}  // namespace pacecar::attack
