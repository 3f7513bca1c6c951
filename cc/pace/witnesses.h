// Witnesses: the flows that met the queue from which a budget was learnt. If other flows then
// arrive instead and meet no queue, it was not this link's but on a path that only the first took.
// The link will then give these others again what it gave them before.
//
// Flows are distinguished by their number modulo 64: if two share a number, knowledge of a queue is
// kept, and knowledge of a clear link is lost. Rates in bit/s. Pure; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "transport/base/units.h"

namespace pacecar {

class Witnesses {
 public:
  // Flows that arrived within one to two windows before a queue was met count as having met it.
  // The rates that flows were given without a queue are forgotten after one to two times `memory`.
  Witnesses(Duration window, Duration memory) : window_(window), memory_(memory) {}

  void on_bytes(Instant now, uint32_t flow) {
    const uint64_t bit = uint64_t{1} << flow % kFlows;
    if (now - generation_began_ >= window_) {
      before_ = now - generation_began_ < window_ * 2 ? lately_ : 0;
      lately_ = 0;
      generation_began_ = now;
    }
    lately_ |= bit;
    if ((known_ & bit) != 0) last_ = now;
  }
  void on_queue(Instant now) {
    known_ = lately_ | before_;
    last_ = now;
    for_each(known_, [this](size_t flow) { given_[flow] = given_before_[flow] = 0; });
  }
  // `rate` arrives without a queue.
  void on_clear(Instant now, double rate) {
    if (now - given_since_ >= memory_) {
      given_since_ = now;
      given_before_ = given_;
      given_.fill(0);
    }
    for_each(lately_ | before_, [&](size_t flow) { given_[flow] = std::max(given_[flow], rate); });
  }
  void forget() { known_ = 0; }
  // No witness has arrived for `pause`.
  bool gone(Instant now, Duration pause) const { return known_ != 0 && now - last_ >= pause; }
  // The rate given to the present other flows without a queue: the least of their highest rates.
  double given() const {
    double least = 0;
    bool first = true;
    for_each((lately_ | before_) & ~known_, [&](size_t flow) {
      const double given = std::max(given_[flow], given_before_[flow]);
      least = std::exchange(first, false) ? given : std::min(least, given);
    });
    return least;
  }

 private:
  static constexpr size_t kFlows = 64;

  template <typename Function>
  static void for_each(uint64_t flows, Function&& function) {
    for (; flows != 0; flows &= flows - 1) function(static_cast<size_t>(std::countr_zero(flows)));
  }

  const Duration window_;
  const Duration memory_;
  Instant generation_began_ = Instant::from_ns(0);
  uint64_t lately_ = 0;
  uint64_t before_ = 0;
  uint64_t known_ = 0;
  Instant last_;                        // when one of `known_` last arrived
  std::array<double, kFlows> given_{};  // since given_since_
  std::array<double, kFlows> given_before_{};
  Instant given_since_ = Instant::from_ns(0);
};

}  // namespace pacecar
