// ArrivalOrder: whether packets of a flow are overtaken by later ones. Packets through one queue
// keep their order, however long the queue is and however fast it grows. Times of sending are the
// sender's, modulo 2^32 ns. Pure.
#pragma once

#include <cstdint>

#include "transport/base/units.h"

namespace pacecar {

class ArrivalOrder {
 public:
  // The packet sent at `sent_ns` arrives. True if a packet that left more than `spread` later has
  // already arrived.
  bool overtaken(uint32_t sent_ns, Duration spread) {
    const auto behind = static_cast<int32_t>(newest_ns_ - sent_ns);
    if (known_ && behind >= 0 && behind < kLongest.ns()) return behind > spread.ns();
    known_ = true;
    newest_ns_ = sent_ns;
    return false;
  }

 private:
  static constexpr Duration kLongest = Duration::from_ms(50);  // else the sender has paused

  uint32_t newest_ns_ = 0;
  bool known_ = false;
};

}  // namespace pacecar
