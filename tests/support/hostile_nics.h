// Two NICs on hostile devices, which work when the test lets them.
#pragma once

#include <array>
#include <memory>
#include <stdexcept>

#include "tests/support/hostile_verbs/hostile_verbs.h"
#include "transport/verbs/verbs_nic.h"

namespace pacecar::test {

class HostileNics {
 public:
  explicit HostileNics(hostile::Behavior behavior, uint32_t paths = 1) {
    behavior.threaded = false;
    hostile::configure(behavior);
    for (auto& nic : nics_) {
      auto opened = VerbsNic::open({.device = "hostile0",
                                    .flows = 4,
                                    .queue_pairs = 16,
                                    .regions = 32,
                                    .paths = paths,
                                    .silence_limit = Duration::from_ms(300)},
                                   now());
      if (!opened) throw std::runtime_error(opened.error().message);
      nic = std::move(*opened);
    }
  }

  VerbsNic& operator[](size_t side) { return *nics_[side]; }
  static Instant now() { return Instant::from_ns(hostile::now_ns()); }

  Instant step() {
    for (int turn = 0; turn < kTurns; ++turn) hostile::turn();
    for (const auto& nic : nics_) {
      nic->receive(now());
      nic->on_time(now());
      nic->transmit(now());
    }
    return now();
  }

 private:
  static constexpr int kTurns = 4;  // of the devices

  std::array<std::unique_ptr<VerbsNic>, 2> nics_;
};

}  // namespace pacecar::test
