// TurnOrder: which of the senders that take turns are served. The oldest turn is served: the one
// that no other present turn precedes by less than half of the circle. So are the next turns, until
// together they have `enough` to send for the time that a grant to the following one takes. Counts
// the flows of each turn, modulo Demand::kTurns, and their bytes left. Pure; one thread.
#pragma once

#include <array>
#include <cstdint>

#include "cc/controller.h"

namespace pacecar {

class TurnOrder {
 public:
  // `enough`: bytes that the served turns should have left together.
  explicit TurnOrder(Bytes enough) : enough_(enough) {}

  // Turns are 1 .. kTurns; `left`: the flow's bytes to send. Each returns whether other turns are
  // served now.
  bool add(uint8_t turn, Bytes left) {
    ++flows_[turn - 1];
    left_[turn - 1] += left;
    if (total_++ == 0 || ahead(turn, oldest_) >= kHalf) oldest_ = turn;
    return serve();
  }
  bool remove(uint8_t turn, Bytes left) {
    --total_;
    --flows_[turn - 1];
    left_[turn - 1] -= left;
    if (total_ == 0) return false;
    while (flows_[oldest_ - 1] == 0) oldest_ = after(oldest_);
    return serve();
  }
  // The bytes left of a flow have changed.
  bool change(uint8_t turn, Bytes from, Bytes to) {
    left_[turn - 1] += to - from;
    return serve();
  }

  bool is_served(uint8_t turn) const { return ahead(turn, first_) <= ahead(last_, first_); }
  bool empty() const { return total_ == 0; }

 private:
  static constexpr uint8_t kHalf = Demand::kTurns / 2;
  static uint8_t ahead(uint8_t turn, uint8_t of) {
    return static_cast<uint8_t>((turn + Demand::kTurns - of) % Demand::kTurns);
  }
  static uint8_t after(uint8_t turn) { return static_cast<uint8_t>(turn % Demand::kTurns + 1); }

  bool serve() {
    uint8_t last = oldest_;
    uint32_t flows = flows_[last - 1];
    Bytes left = left_[last - 1];
    for (uint8_t turn = last; left < enough_ && flows < total_;) {
      turn = after(turn);
      if (flows_[turn - 1] == 0) continue;
      last = turn;
      flows += flows_[turn - 1];
      left += left_[turn - 1];
    }
    const bool moved = first_ != oldest_ || last_ != last;
    first_ = oldest_;
    last_ = last;
    return moved;
  }

  const Bytes enough_;
  std::array<uint16_t, Demand::kTurns> flows_{};
  std::array<Bytes, Demand::kTurns> left_{};
  uint32_t total_ = 0;
  uint8_t oldest_ = 1;
  uint8_t first_ = 1;  // first and last turn that are served
  uint8_t last_ = 1;
};

}  // namespace pacecar
