// RateLimits: the rate limit that each flow's lanes should have in the device, so that the packets
// of a chunk leave one by one and not in a burst at line rate.
//
// The pacer decides when a chunk leaves; the limit must never slow a flow down. So it is a little
// above the highest rate of the last period, it is removed as soon as the flow may be faster, and
// only flows well below line rate have one. Each lane of a flow has the limit of the whole flow,
// because lanes take turns: a chunk leaves on one lane, then the next chunk on the next lane.
//
// Pure: the caller sets the limits at the device. Thread rule: one owner.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "transport/base/units.h"
#include "transport/base/work_list.h"
#include "transport/nic/nic.h"

namespace pacecar {

class RateLimits {
 public:
  // The device's bounds.
  struct Bounds {
    Rate least;
    Rate most;
  };
  static constexpr Duration kPeriod = Duration::from_ms(10);

  RateLimits(Bounds bounds, Rate line, size_t flows, Instant now)
      : bounds_(bounds),
        line_(line),
        flows_(flows, Flow{.rate = {}, .highest = line, .limit = {}}),
        moving_(flows),
        lifts_(flows),
        sets_(flows),
        next_period_(now + kPeriod) {}

  // The pacer's rate has changed.
  void on_rate(FlowId index, Rate rate) {
    // A stopped flow sends nothing that a limit could smooth.
    if (stopped_ || rate == Rate()) return;
    Flow& flow = flows_[index];
    flow.rate = rate;
    flow.highest = std::max(flow.highest, rate);
    moving_.add(index);
    if (flow.limit != Rate() && rate > flow.limit) change(index, {});
  }
  // The flow has new lanes, without a limit.
  void on_lanes(FlowId flow) {
    if (flows_[flow].limit != Rate()) sets_.add(flow);
  }
  void on_time(Instant now) {
    if (now < next_period_) return;
    next_period_ = now + kPeriod;
    for (size_t left = moving_.size(); left > 0; --left) {
      const FlowId index = moving_.take();
      Flow& flow = flows_[index];
      const Rate limit = choose(flow.limit, flow.highest);
      if (limit != flow.limit) change(index, limit);
      if (flow.highest != flow.rate) moving_.add(index);
      flow.highest = flow.rate;
    }
  }
  // The device refuses limits: none from now on.
  void stop() {
    stopped_ = true;
    for (FlowId index = 0; index < flows_.size(); ++index) {
      if (flows_[index].limit != Rate()) change(index, {});
    }
    while (!moving_.empty()) moving_.take();
  }

  // unequal() is a flow with lanes whose limits may differ from limit(); call pop_unequal() when
  // they no longer do. Flows that a limit may slow down come first.
  bool any_unequal() const { return !lifts_.empty() || !sets_.empty(); }
  FlowId unequal() const { return lifts_.empty() ? sets_.front() : lifts_.front(); }
  void pop_unequal() { lifts_.empty() ? sets_.take() : lifts_.take(); }
  Rate limit(FlowId flow) const { return flows_[flow].limit; }  // 0: none

 private:
  static constexpr uint64_t kWellBelow = 4;  // at most 1/4 of line rate
  // A limit is set to an eighth above the rate, and stays as long as it is between a sixteenth and
  // a half above.
  static constexpr uint64_t kAbove = 8;
  static constexpr uint64_t kLeastAbove = 16;
  static constexpr uint64_t kMostAbove = 2;
  // Limits are rounded to so many bits, because devices have a small table of different limits.
  static constexpr int kBits = 4;

  struct Flow {
    Rate rate;
    Rate highest;  // in this period
    Rate limit;
  };

  static Rate rounded_up(uint64_t bps) {
    const int width = static_cast<int>(std::bit_width(bps));
    const uint64_t step = uint64_t{1} << std::max(width - kBits, 0);
    return Rate::from_bps((bps + step - 1) / step * step);
  }

  Rate choose(Rate current, Rate rate) const {
    const uint64_t bps = rate.bps();
    if (bps > line_.bps() / kWellBelow) return {};
    const bool fits =
        current.bps() >= bps + bps / kLeastAbove && current.bps() <= bps + bps / kMostAbove;
    if (fits) return current;
    const Rate wanted = std::max(rounded_up(bps + bps / kAbove), bounds_.least);
    return wanted > bounds_.most ? Rate() : wanted;
  }
  void change(FlowId flow, Rate limit) {
    flows_[flow].limit = limit;
    (limit == Rate() ? lifts_ : sets_).add(flow);
  }

  Bounds bounds_;
  Rate line_;
  std::vector<Flow> flows_;
  WorkList moving_;  // flows whose rate has changed in this period
  WorkList lifts_;   // flows whose limits must be removed
  WorkList sets_;    // flows whose limits must be changed
  Instant next_period_;
  bool stopped_ = false;
};

// The rate limit of a lane in the device, and its effect on measured round trips.
//
// How long the device delays a chunk is not known: at most as the limit requires, but it may send a
// burst first. A round trip is taken to begin as late as the limit allows, and to be no shorter
// than the shortest one without a limit.
class LaneLimit {
 public:
  Rate rate() const { return rate_; }  // 0: none
  void set(Rate rate) { rate_ = rate; }

  // How much later than `departure` a chunk posted `now` may leave. `wire_bytes`: its size on the
  // link.
  Duration hold(Instant now, Instant departure, Bytes wire_bytes) {
    if (rate_ == Rate()) return {};
    free_ = std::max(free_, now) + rate_.time_for(wire_bytes);
    return std::max(free_ - departure, Duration());
  }

  // The round trip of a chunk that was delayed by at most `held`, and completed `since` after its
  // departure.
  Duration round_trip(Duration since, Duration held) {
    if (held == Duration()) shortest_ = std::min(shortest_, since);
    return std::max(since - held, std::min(shortest_, since));
  }

 private:
  Rate rate_;
  Instant free_;  // the latest time at which everything posted has left
  Duration shortest_ = Duration::max();
};

}  // namespace pacecar
