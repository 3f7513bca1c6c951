// Witnesses: the flows that met the queue from which a budget was learnt. If other flows then
// arrive instead and meet no queue, it was not this link's but on a path that only the first took.
// Flows count by number modulo 64: if two share one, a queue stays known. Pure; one thread.
#pragma once

#include <cstdint>

#include "transport/base/units.h"

namespace pacecar {

class Witnesses {
 public:
  // Flows that arrived within one to two windows before a queue was met count as having met it.
  explicit Witnesses(Duration window) : window_(window) {}

  void on_bytes(Instant now, uint32_t flow) {
    const uint64_t bit = uint64_t{1} << flow % 64;
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
  }
  void forget() { known_ = 0; }
  // No witness has arrived for a window.
  bool gone(Instant now) const { return known_ != 0 && now - last_ >= window_; }

 private:
  const Duration window_;
  Instant generation_began_ = Instant::from_ns(0);
  uint64_t lately_ = 0;
  uint64_t before_ = 0;
  uint64_t known_ = 0;
  Instant last_;  // when one of `known_` last arrived
};

}  // namespace pacecar
