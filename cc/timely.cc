#include "cc/timely.h"

#include <algorithm>

namespace pacecar {

TimelyController::TimelyController(const FlowEnvironment& environment, const Constants& constants)
    : RateController(environment, constants) {}

void TimelyController::on_ack(Instant, const FlowSignal& ack) {
  if (ack.rtt <= Duration() || !once_per_round_trip_(ack)) return;
  const bool first = rtt_before_ == Duration();
  const double grown = (ack.rtt - rtt_before_).real_ns();
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
  rate_bps_ = std::min(rate_bps_ + step.real_bps(), line_bps_);
  increases_ = hyper ? increases_ : increases_ + 1;
}

// From 1 on: increase.
double TimelyController::decrease_factor(Duration rtt) const {
  if (rtt < constants_.low_threshold) return 1;
  if (rtt > constants_.high_threshold) {
    const double high = constants_.high_threshold.real_ns();
    return 1 - constants_.decrease * (1 - high / rtt.real_ns());
  }
  const double gradient = difference_ / constants_.gradient_unit.real_ns();
  return std::max(1 - constants_.decrease * gradient, 0.0);
}

}  // namespace pacecar
