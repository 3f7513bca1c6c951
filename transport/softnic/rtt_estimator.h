// Smoothed round trip and its variation, and the timeout derived from them (RFC 6298, with a lower
// bound that suits hosts whose polling threads may lose the processor for a while).
#pragma once

#include <algorithm>

#include "transport/base/units.h"
#include "transport/softnic/config.h"

namespace pacecar {

class RttEstimator {
 public:
  explicit RttEstimator(const LossRecovery& bounds) : bounds_(bounds) {}

  void add(Duration sample) {
    if (smoothed_.ns() == 0) {
      smoothed_ = sample;
      variation_ = sample / 2;
      return;
    }
    const Duration error = sample - smoothed_;
    const Duration distance = error.ns() < 0 ? Duration() - error : error;
    variation_ = variation_ + (distance - variation_) / 4;
    smoothed_ = smoothed_ + error / 8;
  }

  // Round trip of the other queue pairs to this peer; used until this one has a sample.
  void expect(Duration round_trip) {
    if (smoothed_.ns() == 0) add(round_trip);
  }

  // Zero before the first sample.
  Duration smoothed() const { return smoothed_; }
  // Time without any acknowledgement after which the peer is probed (standard RC: one packet is
  // retransmitted), to learn whether the last packets were lost (RFC 8985, section 7; the variation
  // as in RFC 9002, section 6.2).
  Duration probe_timeout() const {
    if (smoothed_.ns() == 0) return bounds_.initial_timeout;
    const Duration unusual = std::max(smoothed_ * 2, smoothed_ + variation_ * 4);
    return std::min(std::max(unusual, bounds_.min_probe), timeout());
  }
  // Time after which the silence means congestion.
  Duration timeout() const {
    if (smoothed_.ns() == 0) return bounds_.initial_timeout;
    return std::min(std::max(smoothed_ + variation_ * 4, bounds_.min_timeout), bounds_.max_timeout);
  }
  // How much later than a delivered packet an earlier one may still arrive (RFC 8985, section 6.2).
  Duration reordering() const {
    if (bounds_.reordering.ns() != 0) return bounds_.reordering;
    return std::max(smoothed_ / 4, Duration::from_us(5));
  }

 private:
  LossRecovery bounds_;
  Duration smoothed_;
  Duration variation_;
};

}  // namespace pacecar
