// TurnOrder: which of the senders that take turns is late. Counts the flows of each turn, modulo
// Demand::kTurns; the oldest is the turn that no other present one precedes by less than half of
// the circle. Pure; one thread.
#pragma once

#include <array>
#include <cstdint>

#include "cc/controller.h"

namespace pacecar {

class TurnOrder {
 public:
  // Turns are 1 .. kTurns. Each returns whether the oldest is another now.
  bool add(uint8_t turn) {
    ++flows_[turn - 1];
    if (total_++ > 0 && ahead(turn, oldest_) < kHalf) return false;
    oldest_ = turn;
    return true;
  }
  bool remove(uint8_t turn) {
    --total_;
    if (--flows_[turn - 1] > 0 || turn != oldest_ || total_ == 0) return false;
    while (flows_[oldest_ - 1] == 0) oldest_ = static_cast<uint8_t>(oldest_ % Demand::kTurns + 1);
    return true;
  }

  bool is_late(uint8_t turn) const { return turn == oldest_; }
  bool empty() const { return total_ == 0; }

 private:
  static constexpr uint8_t kHalf = Demand::kTurns / 2;
  static uint8_t ahead(uint8_t turn, uint8_t of) {
    return static_cast<uint8_t>((turn + Demand::kTurns - of) % Demand::kTurns);
  }

  std::array<uint16_t, Demand::kTurns> flows_{};
  uint32_t total_ = 0;
  uint8_t oldest_ = 1;
};

}  // namespace pacecar
