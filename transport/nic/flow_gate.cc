#include "transport/nic/flow_gate.h"

#include <algorithm>

namespace pacecar {
namespace {

// A slow flow may catch up by so many times the jitter.
constexpr int64_t kCatchUpJitters = 20;

}  // namespace

void FlowGate::set_limits(const FlowLimits& limits, Instant now) {
  burst_ = limits.burst == 0 ? most_ : std::min(limits.burst, most_);
  const Bytes late = limits.rate.bytes_in(jitter_ * kCatchUpJitters);
  pacer_.set_catch_up(std::min(std::max(burst_ * kCatchUpBursts, late), most_ * kCatchUpBursts));
  pacer_.set_rate(
      limits.rate, now,
      limits.from_next_packet ? Pacer::Change::kFromNextPacket : Pacer::Change::kAtOnce);
  if (limits.aligned) {
    pacer_.align(limits.first_send);
  } else {
    pacer_.hold_until(limits.first_send);
  }
  pacer_.move_to(limits.grid, now);
  window_ = limits.window;
  credit_ = limits.credit;
}

}  // namespace pacecar
