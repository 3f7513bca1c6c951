// FanIn: how many flows to expect at the same time. A receiver's buffers are posted long before
// their senders have something to send; dividing the link by all of them would make each wait for a
// round trip, and promising it to each of them would be an incast. So the receiver learns: flows
// that wake up within a round trip are one episode, and the fan-in is the largest number of flows
// that competed at the end of one of the last few episodes. Until it has seen some, all that could
// wake up are expected, or as many as the application says.
//
// Pure; one thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/base/units.h"

namespace pacecar {

class FanIn {
 public:
  static constexpr int64_t kGatheringShare = 4;
  static constexpr uint32_t kLearning = 4;  // episodes before they are trusted
  static constexpr uint32_t kWeight = 4;    // of the newest: one in so many

  explicit FanIn(Duration round_trip) : round_trip_(round_trip) {}

  // A flow has woken up; `competing` flows want more than a round trip's worth now, itself
  // included.
  void on_wake(Instant now, uint32_t competing) {
    if (now >= began_ + round_trip_) {
      if (woken_ > 0) {
        episodes_ = std::min(episodes_ + 1, kLearning);
        mean_ += (seen_ - mean_) / std::min(episodes_, kWeight);
      }
      began_ = now;
      woken_ = seen_ = 0;
    }
    ++woken_;
    seen_ = std::max({seen_, competing, woken_});
  }

  // Flows wake up, and more may be about to.
  bool gathering(Instant now) const { return now < gathered(); }
  Instant gathered() const { return began_ + round_trip_ / kGatheringShare; }

  // `possible`: flows that could wake up.
  double expected(uint32_t possible) const {
    if (episodes_ < kLearning) return static_cast<double>(std::max({possible, seen_, 1U}));
    return std::max(mean_, 1.0);
  }

 private:
  Duration round_trip_;
  double mean_ = 0;        // of the last episodes
  uint32_t episodes_ = 0;  // that are over, up to kLearning
  uint32_t seen_ = 0;      // most that competed in the present episode
  uint32_t woken_ = 0;     // in the present episode
  Instant began_;          // the present episode
};

}  // namespace pacecar
