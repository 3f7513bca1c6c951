// TurnOrder: which of the senders that take turns are served. The oldest turn is, the one that no
// other present one precedes by less than half of the circle; and of those after it as many as have
// together more to send than goes by while the next one is told. Counts the flows of each turn,
// modulo Demand::kTurns, and what is left of them. Pure; one thread.
#pragma once

#include <array>
#include <cstdint>

#include "cc/controller.h"

namespace pacecar {

class TurnOrder {
 public:
  // `enough`: to send, for those that are served.
  explicit TurnOrder(Bytes enough) : enough_(enough) {}

  // Turns are 1 .. kTurns; `left` of a flow is to be sent. Each returns whether others are served
  // now.
  bool add(uint8_t turn, Bytes left) {
    ++flows_[turn - 1];
    left_[turn - 1] += left;
    if (total_++ == 0 || ahead(turn, oldest_) >= kHalf) oldest_ = turn;
    return total_ == 1 ? begin() : serve();
  }
  bool remove(uint8_t turn, Bytes left) {
    --total_;
    --flows_[turn - 1];
    left_[turn - 1] -= left;
    if (total_ == 0) return false;
    while (flows_[oldest_ - 1] == 0) oldest_ = after(oldest_);
    return serve();
  }
  // What is left of a flow becomes another.
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

  bool begin() {
    first_ = last_ = oldest_;
    return true;
  }
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
  uint8_t first_ = 1;  // that is served
  uint8_t last_ = 1;
};

}  // namespace pacecar
