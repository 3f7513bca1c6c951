#include "cc/timely.h"

#include <algorithm>

namespace pacecar {

TimelyController::TimelyController(const FlowEnvironment& environment, const Constants& constants)
    : RateController(environment, constants) {}

void TimelyController::on_ack(Instant, const FlowSignal& ack) {
  if (ack.rtt <= Duration() || !once_per_round_trip_(ack)) return;
  const bool first = rtt_before_ == Duration();
  const auto grown = static_cast<double>(ack.rtt.ns() - rtt_before_.ns());
  rtt_before_ = ack.rtt;
  if (first) return;
  difference_ += constants_.smoothing * (grown - difference_);
  const double factor = decrease_factor(ack.rtt);
  if (factor < 1) {
    rate_bps_ = std::max(rate_bps_ * factor, min_bps_);
    increases_ = 0;
    return;
  }
  const bool hyper = increases_ >= constants_.hyper_after;
  const Rate step = hyper ? constants_.hyper_increase : constants_.additive_increase;
  rate_bps_ = std::min(rate_bps_ + static_cast<double>(step.bps()), line_bps_);
  increases_ = hyper ? increases_ : increases_ + 1;
}

// From 1 on: increase.
double TimelyController::decrease_factor(Duration rtt) const {
  if (rtt < constants_.low_threshold) return 1;
  if (rtt > constants_.high_threshold) {
    const auto high = static_cast<double>(constants_.high_threshold.ns());
    return 1 - constants_.decrease * (1 - high / static_cast<double>(rtt.ns()));
  }
  const double gradient = difference_ / static_cast<double>(constants_.gradient_unit.ns());
  return std::max(1 - constants_.decrease * gradient, 0.0);
}

}  // namespace pacecar
