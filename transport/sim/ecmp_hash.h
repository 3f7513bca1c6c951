// Which of several equally good links a packet takes: by source, destination and path (UDP source
// port), differently at each switch. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pacecar {

// Every bit of the result depends on every bit of `word`; a bijection.
inline uint64_t mix_bits(uint64_t word) {
  word = (word ^ (word >> 32)) * 0xD6E8FEB86659FD93U;
  word = (word ^ (word >> 32)) * 0xD6E8FEB86659FD93U;
  return word ^ (word >> 32);
}

// Hosts are below 2^24.
inline uint64_t flow_hash(uint32_t source, uint32_t destination, uint16_t path) {
  return mix_bits(uint64_t{source} << 40 | uint64_t{destination} << 16 | path);
}

inline size_t pick_one(uint64_t hash, size_t choices) { return ((hash >> 32) * choices) >> 32; }

}  // namespace pacecar
