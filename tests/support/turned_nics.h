// Two NICs that a conformance test polls in real time. One thread.
#pragma once

#include <poll.h>

#include <array>
#include <memory>

#include "tests/support/monotonic_now.h"

namespace pacecar::test {

// `AnyNic` is a NicPort.
template <typename AnyNic>
struct TurnedNics {
  std::array<std::unique_ptr<AnyNic>, 2> nics;

  Instant step() {
    bool idle = true;
    for (auto& nic : nics) {
      const Instant now = monotonic_now();
      idle = nic->receive(now) == 0 && idle;
      nic->on_time(now);
      idle = nic->transmit(now) == 0 && idle;
    }
    if (idle) wait();
    return monotonic_now();
  }

  // Waits at most a millisecond, and not if packets have arrived or a timer is due.
  void wait() {
    std::array<pollfd, 2> ends{};
    for (size_t side = 0; side < nics.size(); ++side) {
      if (!nics[side]->prepare_to_wait(monotonic_now())) return;
      if (nics[side]->next_deadline() < monotonic_now() + Duration::from_ms(1)) return;
      ends[side] = {nics[side]->wait_fd(), POLLIN, 0};
    }
    poll(ends.data(), ends.size(), 1);
  }
};

}  // namespace pacecar::test
