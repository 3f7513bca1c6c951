// Loads and stores in network byte order, at any alignment. Each call compiles to one load or store
// with a byte swap. Pure functions; any thread.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace pacecar::wire {

static_assert(std::endian::native == std::endian::little, "big-endian hosts are not supported");

inline uint16_t load_be16(const uint8_t* from) {
  uint16_t value;
  std::memcpy(&value, from, sizeof value);
  return __builtin_bswap16(value);
}

inline uint32_t load_be32(const uint8_t* from) {
  uint32_t value;
  std::memcpy(&value, from, sizeof value);
  return __builtin_bswap32(value);
}

inline uint64_t load_be64(const uint8_t* from) {
  uint64_t value;
  std::memcpy(&value, from, sizeof value);
  return __builtin_bswap64(value);
}

inline void store_be16(uint16_t value, uint8_t* to) {
  value = __builtin_bswap16(value);
  std::memcpy(to, &value, sizeof value);
}

inline void store_be32(uint32_t value, uint8_t* to) {
  value = __builtin_bswap32(value);
  std::memcpy(to, &value, sizeof value);
}

inline void store_be64(uint64_t value, uint8_t* to) {
  value = __builtin_bswap64(value);
  std::memcpy(to, &value, sizeof value);
}

}  // namespace pacecar::wire
