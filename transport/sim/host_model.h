// When a simulated host takes its turns, and how long they take. An ideal host takes each turn in
// the instant of its cause. A host with a profile is late: after a cause it waits until it is
// woken; while it works a turn takes processor time; and sometimes it is not run at all. Pure and
// deterministic: the same profile, seed and calls give the same times.
#pragma once

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "transport/base/prng.h"
#include "transport/base/units.h"

namespace pacecar {

// A distribution by its quantiles, with straight lines between them.
class Quantiles {
 public:
  Quantiles() = default;
  // `percents` ascend from 0 to 100; `values` are as many, and never descend.
  Quantiles(std::span<const double> percents, std::span<const Duration> values)
      : percents_(percents.begin(), percents.end()), values_(values.begin(), values.end()) {}

  Duration at(double percent) const;
  Duration draw(Prng& random) const { return at(random.fraction() * 100); }
  bool empty() const { return values_.empty(); }

 private:
  std::vector<double> percents_;
  std::vector<Duration> values_;
};

struct HostProfile {
  std::string name = "ideal";
  Quantiles wake;                // empty: an ideal host
  Quantiles pause;               // a host with work to do is not run
  double pauses_per_second = 0;  // of work
  Duration turn;                 // processor time of a turn, in addition to:
  Duration packet;               // of a packet, sent or received
  Duration message;              // of a message, at either end
  Bytes burst_bytes = 0;         // that the NIC sends at once; 0: one packet
  bool joins_packets = false;    // of a burst: one call costs less than several
  Duration stack;              // from a turn that sends until the packet is on the cable, and back
  bool times_arrivals = true;  // knows when a packet arrived, not only when a turn took it

  bool ideal() const { return wake.empty(); }
};

class HostModel {
 public:
  // `profile` is not ideal, and outlives the model.
  HostModel(const HostProfile& profile, uint64_t seed) : profile_(profile), random_(seed) {
    until_pause_ = next_pause();
  }

  // When a host takes the turn for which it has found a cause now.
  Instant turn_for(Instant now) { return now < free_ ? free_ : now + profile_.wake.draw(random_); }
  // A turn has been taken; returns when the next one can begin.
  Instant worked(Instant now, size_t packets, size_t messages);

 private:
  // The work until the next pause.
  Duration next_pause() {
    if (profile_.pauses_per_second == 0) return Duration::max();
    return Duration::from_ns(
        static_cast<int64_t>(-std::log1p(-random_.fraction()) * 1e9 / profile_.pauses_per_second));
  }

  const HostProfile& profile_;
  Prng random_;
  Instant free_;  // works until then
  Duration until_pause_;
};

}  // namespace pacecar
