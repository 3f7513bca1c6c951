#include "cc/hpcc.h"

#include <algorithm>

namespace pacecar {

// NewAck, with ComputeWind inlined; a window W of the paper is a rate W/T here.
void HpccController::on_ack(Instant, const FlowSignal& ack) {
  const bool new_round = once_per_round_trip_(ack);
  const bool measured = signal_.update(ack.path(), [this](const HopChange& hop) {
    const double queue = std::min(hop.queue_bits, hop.queue_bits_before);
    return (hop.sent_bps + queue / base_rtt_.seconds()) / hop.line_bps;
  });
  if (!measured) return;
  const double excess = signal_.load() / constants_.target_load;
  const bool multiplicative = excess >= 1 || stage_ >= constants_.max_stage;
  const double increase = constants_.additive_increase.real_bps();
  const double base = multiplicative ? reference_bps_ / excess : reference_bps_;
  rate_bps_ = std::clamp(base + increase, min_bps_, line_bps_);
  if (!new_round) return;
  reference_bps_ = rate_bps_;
  stage_ = multiplicative ? 0 : stage_ + 1;
}

}  // namespace pacecar
