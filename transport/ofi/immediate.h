// What a write brings along for the peer's completion queue, where the provider carries 64 bits:
// which of its queue pairs the write is for, how long it is, and the immediate value. Providers do
// not tell the length by themselves; it is never 0.
//
// Pure.
#pragma once

#include <cstdint>

#include "transport/base/units.h"

namespace pacecar {

struct OfiImmediate {
  static constexpr Bytes kDataBytes = 8;
  static constexpr unsigned kSlotBits = 13;
  static constexpr unsigned kLengthBits = 19;
  static constexpr uint32_t kMaxSlots = 1U << kSlotBits;
  // Of a write that is told of so; of longer ones, messages tell.
  static constexpr Bytes kMaxBytes = Bytes{1} << kLengthBits;

  uint32_t slot = 0;  // of the receiver's queue pair
  Bytes bytes = 1;
  uint32_t immediate = 0;

  uint64_t pack() const {
    return uint64_t{slot} << (32 + kLengthBits) | static_cast<uint64_t>(bytes - 1) << 32 |
           immediate;
  }
  static OfiImmediate unpack(uint64_t data) {
    return {.slot = static_cast<uint32_t>(data >> (32 + kLengthBits)),
            .bytes = (data >> 32 & (kMaxBytes - 1)) + 1,
            .immediate = static_cast<uint32_t>(data)};
  }
};

}  // namespace pacecar
