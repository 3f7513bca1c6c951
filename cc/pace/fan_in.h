// FanIn: how many flows to expect at the same time. A receiver's buffers are posted long before
// their senders have something to send; dividing the link by all of them would make each wait for a
// round trip, and promising it to each of them would be an incast. So the receiver learns: flows
// that wake up within a short time are one episode, and the fan-in is the largest number of flows
// that competed at the end of one of the last few episodes. Until it has seen some, all that could
// wake up are expected, or as many as the application says.
//
// Pure; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "transport/base/units.h"

namespace pacecar {

class FanIn {
 public:
  static constexpr uint32_t kEpisodes = 4;

  explicit FanIn(Duration window) : window_(window) {}

  // A flow has woken up; `competing` flows want more than a round trip's worth now, itself
  // included.
  void on_wake(Instant now, uint32_t competing) {
    if (now >= ends_) {
      next_ = (next_ + 1) % kEpisodes;
      seen_[next_] = 0;
      known_ = std::min(known_ + 1, kEpisodes);
      ends_ = now + window_;
      woken_ = 0;
    }
    ++woken_;
    seen_[next_] = std::max({seen_[next_], competing, woken_});
    const uint32_t most = *std::max_element(seen_.begin(), seen_.end());
    if (most > 2 * held_ || 2 * most <= held_) held_ = most;
  }

  // Flows wake up, and more may be about to.
  bool in_episode(Instant now) const { return now < ends_; }
  Instant episode_ends() const { return ends_; }

  // `possible`: flows that could wake up.
  uint32_t expected(uint32_t possible) const {
    if (known_ == kEpisodes) return held_;
    return std::max({possible, *std::max_element(seen_.begin(), seen_.end()), 1U});
  }

 private:
  Duration window_;
  std::array<uint32_t, kEpisodes> seen_{};
  uint32_t held_ = 1;  // follows the largest of these when that is twice as large, or half
  uint32_t next_ = 0;
  uint32_t known_ = 0;
  uint32_t woken_ = 0;
  Instant ends_;
};

}  // namespace pacecar
