// A small deterministic generator: the same seed gives the same sequence with every compiler and on
// every machine. xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom number
// generators", 2021), its state filled by splitmix64. Not for secrets. Thread rule: one owner.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "transport/base/check.h"

namespace pacecar {

class Prng {
 public:
  explicit constexpr Prng(uint64_t seed) {
    for (uint64_t& word : state_) word = splitmix64(seed);
  }

  constexpr uint64_t next_u64() {
    const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // Uniform over 0 .. n-1, without bias; n is at least 1. A draw is the high half of a 128-bit
  // product; products whose low half is below 2^64 mod n are one too many and are drawn again.
  constexpr uint64_t below(uint64_t n) {
    PACECAR_CHECK(n > 0);
    const uint64_t surplus = (0 - n) % n;
    for (;;) {
      const auto product = static_cast<unsigned __int128>(next_u64()) * n;
      if (static_cast<uint64_t>(product) >= surplus) return static_cast<uint64_t>(product >> 64);
    }
  }

  // Uniform over 0 .. 1 without 1.
  constexpr double fraction() { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }

  // True with `probability`, which is clamped to 0 .. 1. Always consumes one draw.
  constexpr bool chance(double probability) { return fraction() < probability; }

 private:
  static constexpr uint64_t splitmix64(uint64_t& seed) {
    seed += 0x9e3779b97f4a7c15;
    uint64_t word = seed;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
  }

  std::array<uint64_t, 4> state_{};
};

}  // namespace pacecar
