// RateLimits: which rate the device should keep the lanes of each flow to, so that the packets of a
// chunk leave one by one and not in a burst at line rate.
//
// The pacer decides when a chunk leaves; the limit must never be what holds a flow up. So it is a
// little above the highest rate of the last period, it goes as soon as the flow may be faster, and
// there is none for flows that are not well below line rate. Each lane of a flow has the limit of
// the whole flow: lanes take turns, a chunk each, and the next one is due when this one has left.
//
// Pure: whoever drives it tells the device. Thread rule: one owner.
#pragma once

#include <vector>

#include "transport/base/units.h"
#include "transport/base/work_list.h"
#include "transport/nic/nic.h"

namespace pacecar {

class RateLimits {
 public:
  // What the device takes.
  struct Bounds {
    Rate least;
    Rate most;
  };
  static constexpr Duration kPeriod = Duration::from_ms(10);

  RateLimits(Bounds bounds, Rate line, size_t flows, Instant now);

  // The pacer's rate has changed.
  void on_rate(FlowId flow, Rate rate);
  // Lanes of the flow have come that have no limit.
  void on_lanes(FlowId flow) {
    if (flows_[flow].limit != Rate()) sets_.add(flow);
  }
  void on_time(Instant now);
  // The device refuses: no limits from now on.
  void stop();
  bool stopped() const { return stopped_; }

  // A flow of which lanes may differ from limit(); they do no longer: settled(). First come those
  // that a limit may hold up.
  bool any_unequal() const { return !lifts_.empty() || !sets_.empty(); }
  FlowId unequal() const { return lifts_.empty() ? sets_.front() : lifts_.front(); }
  void settled() { lifts_.empty() ? sets_.take() : lifts_.take(); }
  Rate limit(FlowId flow) const { return flows_[flow].limit; }  // 0: none

 private:
  struct Flow {
    Rate rate;
    Rate highest;  // in this period
    Rate limit;
  };

  Rate choose(Rate current, Rate rate) const;
  void change(FlowId flow, Rate limit);

  Bounds bounds_;
  Rate line_;
  std::vector<Flow> flows_;
  WorkList moving_;  // flows whose rate has changed in this period
  WorkList lifts_;   // flows whose lanes had a limit, and shall have none
  WorkList sets_;    // flows whose lanes shall have another
  Instant next_period_;
  bool stopped_ = false;
};

}  // namespace pacecar
