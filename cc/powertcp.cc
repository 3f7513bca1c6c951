#include "cc/powertcp.h"

#include <algorithm>

namespace pacecar {

// NewAck and UpdateWindow; a window of the paper is a rate here. The paper leaves open what the
// first acknowledgement is compared with. A flow that starts into a queue must not wait a round
// trip before it reacts, so the queue counts as growth.
void PowerTcpController::on_ack(Instant, const FlowSignal& ack) {
  const bool new_round = once_per_round_trip_(ack);
  if (signal_.empty()) signal_.assume_full_links_before(ack.path());
  const bool measured =
      signal_.update(ack.path(), [this](const HopChange& hop) { return normalized_power(hop); });
  if (!measured) return;
  const double excess = signal_.load() / constants_.target_power;
  const double increase = constants_.additive_increase.real_bps();
  const double gamma = constants_.smoothing;
  rate_bps_ =
      std::clamp(gamma * (reference_bps_ / excess + increase) + (1 - gamma) * reference_bps_,
                 min_bps_, line_bps_);
  if (new_round) reference_bps_ = rate_bps_;
}

// NormPower of one hop. What arrived is what left and what the queue grew by.
double PowerTcpController::normalized_power(const HopChange& hop) const {
  const double growth_bps = (hop.queue_bits - hop.queue_bits_before) / hop.seconds;
  const double arrivals =
      std::max((hop.sent_bps + growth_bps) / hop.line_bps, constants_.least_arrivals);
  const double product_bits = hop.line_bps * base_rtt_.seconds();
  return arrivals * (hop.queue_bits + product_bits) / product_bits;
}

}  // namespace pacecar
