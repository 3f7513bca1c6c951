// FanIn: how many flows to expect at the same time, so that idle flows can hold their part of the
// link. Flows that wake up within a round trip are one episode; the fan-in is the median, over the
// last five episodes, of the most competing flows. Before the first episode ends, all flows that
// could wake up are expected, or as many as the application's hint has. Pure; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/base/units.h"

namespace pacecar {

class FanIn {
 public:
  // `word`: time of a demand on the link.
  FanIn(Duration round_trip, Duration word) : round_trip_(round_trip), word_(word) {}

  // A flow has woken up; `competing` flows want more than a round trip's worth, itself too.
  void on_wake(Instant now, uint32_t competing) {
    if (over(now)) {
      if (woken_ > 0) close_episode();
      began_ = now;
      woken_ = seen_ = 0;
    }
    ++woken_;
    seen_ = std::max({seen_, competing, woken_});
  }

  // Whether the episode already has a flow counted at `earlier`: its data may overtake its demand.
  bool counted(Instant earlier, Instant now) const { return earlier >= began_ && !over(now); }

  // An episode has just begun, and more flows may wake up.
  bool gathering(Instant now) const { return now < gathered(); }
  // When all flows of the episode are known. The more flows there are, the longer their demands
  // take on the link, next to their first packets.
  Instant gathered() const {
    return began_ + round_trip_ / kGatheringShare + word_ * woken_ * kWordsApart;
  }

  // At least one episode is over.
  bool learned() const { return episodes_ > 0; }

  // `possible`: flows that could wake up.
  uint32_t expected(uint32_t possible) const {
    return learned() ? usual_ : std::max({possible, seen_, 1U});
  }

 private:
  static constexpr size_t kEpisodes = 5;
  static constexpr int64_t kGatheringShare = 4;
  static constexpr int64_t kWordsApart = 2;

  bool over(Instant now) const { return now >= std::max(began_ + round_trip_, gathered()); }
  void close_episode() {
    last_[episodes_++ % kEpisodes] = seen_;
    auto sorted = last_;
    const auto end = sorted.begin() + std::min(episodes_, kEpisodes);
    const auto median = sorted.begin() + (end - sorted.begin()) / 2;
    std::nth_element(sorted.begin(), median, end);
    usual_ = *median;
  }

  const Duration round_trip_;
  const Duration word_;
  std::array<uint32_t, kEpisodes> last_{};  // most that competed in each
  size_t episodes_ = 0;                     // completed
  uint32_t usual_ = 1;
  uint32_t seen_ = 0;   // most that competed in the present episode
  uint32_t woken_ = 0;  // in the present episode
  Instant began_;       // the present episode
};

}  // namespace pacecar
