// LinkCapacity: what of a receiving link there is to grant, from what arrives on it.
//
//   available = eta * min(C, b) - X - q / (4 RTT)
//
// C is the nominal rate, or this process's part of it; b what the link really gives us
// (link_budget.h). eta is 1 for a flow alone, else 0.985. X is traffic that arrives here and that
// no grant covers; it follows what is seen by half per round trip and falls by a quarter, and flows
// on grants keep half of the link against it. q is the queue at the last hop: line rate times the
// least excess delay of all packets of a round trip; queues elsewhere are on the way of some
// packets only. It is drained while the link gives its nominal rate: where it does not, b is cut
// for it.
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

  // `wire` bytes have arrived; `excess` is how much longer the fastest of them was on its way than
  // the fastest lately.
  // True when the result may be another.
  bool on_arrival(Instant now, Bytes wire, bool covered, Duration excess, bool overtaken,
                  uint32_t flow);
  Duration spread() const { return budget_.spread(); }
  // What is there for `flows` flows.
  double available(size_t flows) const;
  // So many take turns to send a packet: a queue that is gone once in a turn does not stand.
  void set_flows(size_t flows) {
    window_ = std::max(least_window_, packet_time_ * static_cast<int64_t>(flows));
  }

  // What the flows could use in all. Where that is less than the link, a queue is not the link's,
  // or the senders act, too.
  void set_usable(double usable) {
    budget_.set_patience(usable < kUnlimited * line() ? kPatienceUnlimited : 1);
  }

  // This process's part of the link.
  void set_line(double line) { budget_.set_part(line_ = line); }
  // LinkBudget::set_weight.
  void set_weight(double mean, double share) { budget_.set_weight(mean, share); }
  double line() const { return std::min(line_, budget_.rate()); }
  double uncovered() const { return uncovered_; }
  Duration queue() const { return queue_; }

 private:
  static constexpr double kUnlimited = 7.0 / 8;
  static constexpr int64_t kPatienceUnlimited = 8;

  void close_window(Instant now);

  double line_;
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
