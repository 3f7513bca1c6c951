// EmptyPath: the time that a flow's packets take without queues, by packet size, so that
// serialization is not mistaken for delay: at 200 Mb/s a packet of 8 KiB arrives 330 us after an
// empty one that left with it, and is not late.
// So a packet is compared with the least time of its size class in the last and the present period.
// Older times are forgotten, because clocks drift and paths become longer.
// Times are modulo 2^32 ns and may be of two clocks. Pure; one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/base/units.h"

namespace pacecar {

class EmptyPath {
 public:
  // Payloads below 1/4, 1/2 and all of the MTU, and full ones.
  static constexpr size_t kClasses = 4;
  static size_t size_class(Bytes payload, Bytes mtu) {
    if (payload >= mtu) return 3;
    if (payload >= mtu / 2) return 2;
    return payload >= mtu / 4 ? 1 : 0;
  }

  // How much longer this packet took than the recent least of its class.
  Duration excess(Instant now, uint32_t took_ns, size_t size_class, Duration memory) {
    if (now - since_ >= memory) {
      since_ = now;
      least_ = newest_;
      newest_ = {};
    }
    Least& newest = newest_[size_class];
    Least& least = least_[size_class];
    if (!newest.known || behind(took_ns, newest.ns) < 0) newest = {took_ns, true};
    if (!least.known || behind(took_ns, least.ns) < 0) least = {took_ns, true};
    return Duration::from_ns(behind(took_ns, least.ns));
  }

 private:
  struct Least {
    uint32_t ns = 0;
    bool known = false;
  };
  // No path becomes shorter by this at once: such a packet was sent seconds ago.
  static constexpr uint32_t kMostEarly = 1U << 28;  // ns
  static int64_t behind(uint32_t took, uint32_t least) {
    return int64_t{took - least + kMostEarly} - kMostEarly;
  }

  std::array<Least, kClasses> least_{};
  std::array<Least, kClasses> newest_{};  // of the present period
  Instant since_;
};

}  // namespace pacecar
