// LimitMeter: what limits a sending flow, the one definition for pacecar bw and doctor, traces and
// reports. The controller knows what bounds the rate; how much of that rate the flow uses is
// measured here. Pure; used by the thread that drives the messenger.
#pragma once

#include <array>
#include <cstdint>

#include "cc/controller.h"

namespace pacecar {

// How often each of kEveryLimit was found.
using LimitCounts = std::array<uint64_t, kEveryLimit.size()>;

class LimitMeter {
 public:
  // Called by housekeeping while the flow is served: measures, and counts what limits it.
  void sample(Instant now, const Explanation& explanation, const FlowStats& stats) {
    measure(now, stats);
    ++counts_[static_cast<size_t>(limit(explanation, stats))];
  }

  // What limits the flow now. A flow that sends less than half of its rate is not limited by the
  // rate. If the grant equals rate_max, that is the limit: the receiver has the same one.
  LimitedBy limit(const Explanation& explanation, const FlowStats& stats) const {
    if (stats.backlog == 0) return LimitedBy::kApplication;
    if (measured_ && silent_) return LimitedBy::kNetwork;
    if (stats.window_full && explanation.limited_by != LimitedBy::kNetwork) {
      return LimitedBy::kWindow;
    }
    if (measured_ && used_ < explanation.rate.bps() / 2) return LimitedBy::kHost;
    const uint64_t most = explanation.rate_max.bps();
    const bool at_most = most > 0 && explanation.rate.bps() >= most - most / kNearMost;
    return explanation.limited_by == LimitedBy::kGrant && at_most ? LimitedBy::kBudget
                                                                  : explanation.limited_by;
  }

  const LimitCounts& counts() const { return counts_; }

 private:
  static constexpr Duration kSpan = Duration::from_ms(20);
  static constexpr uint64_t kNearMost = 32;  // a rate above 31/32 of rate_max is at it
  static constexpr Duration kFresh = Duration::from_ms(200);
  static constexpr Bytes kSlack = 64 << 10;  // what a span may miss by chance

  // Measures the rate over at least kSpan with a backlog at each sample; it counts for kFresh.
  void measure(Instant now, const FlowStats& stats) {
    if (measured_ && now - measured_at_ > kFresh) measured_ = false;
    if (stats.backlog == 0) {
      began_ = false;
      return;
    }
    if (began_ && now - since_ < kSpan) return;
    if (began_) {
      const Bytes sent = stats.sent - sent_ + kSlack;
      used_ = static_cast<uint64_t>(static_cast<double>(sent) * 8 / (now - since_).seconds());
      silent_ = stats.in_flight > 0 && stats.acked == acked_;
      measured_ = true;
      measured_at_ = now;
    }
    began_ = true;
    since_ = now;
    sent_ = stats.sent;
    acked_ = stats.acked;
  }

  LimitCounts counts_{};
  bool began_ = false;
  Instant since_;
  Bytes sent_ = 0;  // by then
  Bytes acked_ = 0;
  bool silent_ = false;  // nothing is acknowledged
  bool measured_ = false;
  Instant measured_at_;
  uint64_t used_ = 0;  // bit/s
};

}  // namespace pacecar
