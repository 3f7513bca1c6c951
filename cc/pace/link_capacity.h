// LinkCapacity: the rate of a receiving link that can be granted, from its arrivals.
//
//   available = eta * min(C, b) - X - q / (4 RTT)
//
// C is the nominal rate, or this process's part of it; b the budget (link_budget.h). eta is 1 for a
// flow alone, else 0.985. X is traffic that no grant covers: per round trip it rises by half of the
// difference to the measured rate and falls by a quarter of it, and flows with grants keep half of
// the link against it. q is the queue at the last hop: line rate times the least excess delay of
// all packets of a round trip. It is drained while the link gives its nominal rate; else b is cut.
//
// Rates are in bit/s on the wire. Pure; one thread.
#pragma once

#include <algorithm>

#include "cc/controller.h"
#include "cc/pace/constants.h"
#include "cc/pace/link_budget.h"
#include "transport/base/units.h"

namespace pacecar {

class LinkCapacity {
 public:
  // environment.line_rate is that of the receiving link; `round_trip` without queues.
  LinkCapacity(const FlowEnvironment& environment, Duration round_trip, Duration base_memory,
               const PaceConstants& constants);

  // `wire` bytes have arrived; `excess`: delay of the fastest of them over the recent minimum. True
  // if available() may have changed.
  bool on_arrival(Instant now, Bytes wire, bool covered, Duration excess, uint32_t flow);
  // The rate that `flows` flows can be granted, in all.
  double available(size_t flows) const;
  // So many flows take turns to send a packet: a queue that empties once per turn does not stand.
  void set_flows(size_t flows) {
    window_ = std::max(least_window_, packet_time_ * static_cast<int64_t>(flows));
  }

  // `usable`: all that the flows could use. If it is less than the link's rate, a queue is not this
  // link's, or the senders react to it, too.
  void set_usable(double usable) {
    budget_.set_patience(usable < kUnlimited * line() ? kPatienceUnlimited : 1);
  }

  // This process's part of the link.
  void set_line(double line) { budget_.set_part(line); }
  void set_round_trip(Duration least) { budget_.set_round_trip(least); }
  // LinkBudget::set_weight.
  void set_weight(double mean, double share) { budget_.set_weight(mean, share); }
  double line() const { return budget_.rate(); }
  double uncovered() const { return uncovered_; }
  Duration queue() const { return queue_; }

 private:
  static constexpr double kUnlimited = 7.0 / 8;
  static constexpr int64_t kPatienceUnlimited = 8;

  void close_window(Instant now);

  const Duration packet_time_;  // of a full one
  const Duration least_window_;
  Duration window_ = least_window_;
  const Duration jitter_;
  const PaceConstants& constants_;
  LinkBudget budget_;
  double uncovered_ = 0;  // X
  Duration queue_;        // q / C
  // The present window.
  Instant started_;
  Bytes foreign_ = 0;
  Duration least_excess_ = Duration::max();
};

}  // namespace pacecar
