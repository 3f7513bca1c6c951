// CoreRate: the share of its link's rate for which a receiver grants credit, where the core of the
// network is oversubscribed: packets on credit for the whole link would only be trimmed on the way.
// After the receiver's oversubscription control of UEC 1.0's reference simulator.
// Every 1.5 base round trips it evaluates the arrivals. Packets that were trimmed before the last
// hop lower the rate by their share; so do marks whose average share is above `marked`. Without
// either the rate grows, by twice as much in each interval. Invariant: max(kCoreRate.share /
// oversubscription, kCoreRate.least) <= rate() <= 1. Purity and thread rule as for Allocator.
#pragma once

#include "cc/allocator.h"

namespace pacecar {

struct CoreRateConstants {
  // Name and default           Unit, range, source: UEC's reference simulator.
  double interval = 1.5;   // base round trips, > 0
  double increase = 0.01;  // of the line rate, [0, 1]; doubles with each clean interval
  double weight = 0.5;     // of an interval in the average share of marked packets, (0, 1]
  double marked = 0.3;     // share of marked packets that is tolerated, [0, 1]
  double decrease = 0.5;   // of the rate, times the share of marks beyond it, [0, 1]
  double share = 0.9;      // least rate: of line rate / oversubscription, (0, 1]
  double least = 0.01;     // least rate: of the line rate, (0, 1]
};
inline constexpr CoreRateConstants kCoreRate;

class CoreRate {
 public:
  CoreRate(Duration base_round_trip, double oversubscription);

  void on_counts(Instant now, const ArrivalCounts& counts);
  // Share of the line rate.
  double rate() const { return rate_; }

 private:
  void look(const ArrivalCounts& counts);

  Duration interval_;
  double least_;
  Instant next_look_;
  ArrivalCounts seen_;
  double rate_ = 1;
  double marked_ = 0;  // average share
  double step_ = kCoreRate.increase;
};

}  // namespace pacecar
