#include "transport/verbs/rate_limits.h"

#include <algorithm>
#include <bit>

namespace pacecar {
namespace {

constexpr uint64_t kWellBelow = 4;  // at most 1/4 of line rate
// A limit is set to an eighth above the rate, and stays as long as it is between a sixteenth and a
// half above.
constexpr uint64_t kAbove = 8;
constexpr uint64_t kLeastAbove = 16;
constexpr uint64_t kMostAbove = 2;
// Limits are rounded to so many bits, because devices have a small table of different limits.
constexpr int kBits = 4;

Rate rounded_up(uint64_t bps) {
  const int width = static_cast<int>(std::bit_width(bps));
  const uint64_t step = uint64_t{1} << std::max(width - kBits, 0);
  return Rate::from_bps((bps + step - 1) / step * step);
}

}  // namespace

RateLimits::RateLimits(Bounds bounds, Rate line, size_t flows, Instant now)
    : bounds_(bounds),
      line_(line),
      flows_(flows, Flow{.rate = {}, .highest = line, .limit = {}}),
      moving_(flows),
      lifts_(flows),
      sets_(flows),
      next_period_(now + kPeriod) {}

void RateLimits::on_rate(FlowId index, Rate rate) {
  // A stopped flow sends nothing that a limit could smooth.
  if (stopped_ || rate == Rate()) return;
  Flow& flow = flows_[index];
  flow.rate = rate;
  flow.highest = std::max(flow.highest, rate);
  moving_.add(index);
  if (flow.limit != Rate() && rate > flow.limit) change(index, {});
}

void RateLimits::on_time(Instant now) {
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

void RateLimits::stop() {
  stopped_ = true;
  for (FlowId index = 0; index < flows_.size(); ++index) {
    if (flows_[index].limit != Rate()) change(index, {});
  }
  while (!moving_.empty()) moving_.take();
}

Rate RateLimits::choose(Rate current, Rate rate) const {
  const uint64_t bps = rate.bps();
  if (bps > line_.bps() / kWellBelow) return {};
  const bool fits =
      current.bps() >= bps + bps / kLeastAbove && current.bps() <= bps + bps / kMostAbove;
  if (fits) return current;
  const Rate wanted = std::max(rounded_up(bps + bps / kAbove), bounds_.least);
  return wanted > bounds_.most ? Rate() : wanted;
}

void RateLimits::change(FlowId flow, Rate limit) {
  flows_[flow].limit = limit;
  (limit == Rate() ? lifts_ : sets_).add(flow);
}

}  // namespace pacecar
