// Pieces: which pieces have arrived of packets that are too large for their path (PathMtu). A
// packet whose pieces are forgotten, because another needs its slot, must be sent again as a whole;
// its bytes may be placed twice, but it is accepted once.
// Bounded; allocates when the first piece arrives. Thread rule: one owner.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>

#include "transport/base/units.h"

namespace pacecar {

class Pieces {
 public:
  // Counts a piece with `payload` bytes. Once all pieces of the packet have arrived, it returns the
  // payload bytes of the packet.
  std::optional<Bytes> add(uint64_t psn, uint8_t piece, uint8_t pieces, Bytes payload) {
    if (slots_ == nullptr) slots_ = std::make_unique<std::array<Slot, kSlots>>();
    Slot& slot = (*slots_)[psn % kSlots];
    if (slot.psn != psn || slot.pieces != pieces) slot = {.psn = psn, .pieces = pieces};
    if (!slot.arrived[piece]) {
      slot.arrived.set(piece);
      slot.payload += payload;
    }
    if (slot.arrived.count() < pieces) return std::nullopt;
    const Bytes whole = slot.payload;
    slot = {};
    return whole;
  }

 private:
  static constexpr size_t kSlots = 64;
  struct Slot {
    uint64_t psn = 0;
    uint8_t pieces = 0;
    Bytes payload = 0;
    std::bitset<256> arrived{};
  };

  std::unique_ptr<std::array<Slot, kSlots>> slots_;
};

}  // namespace pacecar
