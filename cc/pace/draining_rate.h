// DrainingRate: a rate that was cut because a queue stood. What passed while the queue stood is all
// that is there, so a quarter of the decrease below it lasts, as a margin; the rest ends when the
// queue should be gone. Rates are bit/s on the wire. Pure; one thread.
#pragma once

#include <algorithm>

#include "transport/base/units.h"

namespace pacecar {

struct DrainingRate {
  double lasting;     // the rate without a queue
  double factor = 1;  // of `lasting`, in force until `until`
  Instant until;

  double rate() const { return lasting * factor; }

  // True if the rate has risen: the queue should be gone.
  bool poll(Instant now) {
    if (factor == 1 || now < until) return false;
    factor = 1;
    return true;
  }

  // `through` passed while the queue stood. `beyond`: the delay to drain; `round_trip` includes it.
  void cut(Instant now, double through, Duration beyond, Duration round_trip) {
    const double part = beyond.real_ns() / round_trip.real_ns();
    const double decrease = std::clamp(part / kRoundTrips, 0.0, kMost);
    lasting = through * (1 - decrease * kLasting);
    factor = 1 - decrease * (1 - kLasting);
    until = now + round_trip * kRoundTrips;
  }

 private:
  static constexpr double kLasting = 0.25;  // of the decrease
  static constexpr double kMost = 0.5;      // of the rate, to drain a queue
  static constexpr int64_t kRoundTrips = 2;
};

}  // namespace pacecar
