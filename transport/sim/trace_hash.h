// A running 64-bit hash over what happened in a run: two runs with equal hashes did the same, in
// the same order. It detects accidents, not forgery. Thread rule: one thread.
#pragma once

#include <cstdint>

namespace pacecar {

class TraceHash {
 public:
  void add(uint64_t word) {
    state_ = (state_ ^ word) * 0x9E3779B97F4A7C15U;  // odd, so no information is lost
    state_ ^= state_ >> 32U;
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0;
};

}  // namespace pacecar
