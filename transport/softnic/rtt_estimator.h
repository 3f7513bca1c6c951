// RttEstimator: the smoothed round trip, its variation, and the timeouts from them (RFC 6298). The
// timeout's lower bound suits hosts that preempt a polling thread. Thread rule: one owner.
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

  // The round trip of another queue pair with this peer, used until this one has a sample.
  void expect(Duration round_trip) {
    if (smoothed_.ns() == 0) add(round_trip);
  }

  // Zero before the first sample.
  Duration smoothed() const { return smoothed_; }
  // After this time without an acknowledgement the peer is probed (standard RC: one packet is
  // retransmitted), to find out whether the last packets were lost (RFC 8985, section 7; the
  // variation as in RFC 9002, section 6.2).
  Duration probe_timeout() const {
    if (smoothed_.ns() == 0) return bounds_.initial_timeout;
    const Duration unusual = std::max(smoothed_ * 2, smoothed_ + variation_ * 4);
    return std::min(std::max(unusual, bounds_.min_probe), timeout());
  }
  // After this time without an acknowledgement the silence counts as congestion.
  Duration timeout() const {
    if (smoothed_.ns() == 0) return bounds_.initial_timeout;
    return std::min(std::max(smoothed_ + variation_ * 4, bounds_.min_timeout), bounds_.max_timeout);
  }
  // How much earlier than a delivered packet a lost one must have left (RFC 8985, section 6.2).
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
