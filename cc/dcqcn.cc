#include "cc/dcqcn.h"

#include <algorithm>

namespace pacecar {
namespace {

constexpr double kReferenceLineBps = 25e9;  // line rate for which the increases are given

// base^exponent by squaring: the same bits everywhere, unlike std::pow.
double power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

}  // namespace

DcqcnController::DcqcnController(const FlowEnvironment& environment, const Constants& constants)
    : RateController(environment, constants),
      additive_bps_(constants.additive_increase.real_bps() * line_bps_ / kReferenceLineBps),
      hyper_bps_(constants.hyper_increase.real_bps() * line_bps_ / kReferenceLineBps),
      target_bps_(line_bps_) {}

void DcqcnController::on_ack(Instant now, const FlowSignal& ack) {
  catch_up(now);
  if (ack.marked == 0 && !ack.echo_marked) return;
  if (!started_) {
    started_ = true;
    started_at_ = now;
  } else {
    update_alpha(now);
    marked_ = true;
  }
  if (next_cut_ != Instant::never()) return;
  const int64_t ticks = (now - started_at_).ns() / constants_.cut_period.ns();
  next_cut_ = started_at_ + constants_.cut_period * (ticks + 1);
}

FlowLimits DcqcnController::decide(Instant now) {
  catch_up(now);
  return RateController::decide(now);
}

// The loop ends: at most one cut, and the increases end at the line rate. If both clocks fire
// together, the increase comes first.
void DcqcnController::catch_up(Instant now) {
  while (std::min(next_increase_, next_cut_) <= now) {
    if (next_increase_ <= next_cut_) {
      increase();
    } else {
      cut(next_cut_);
    }
  }
}

// Ticks without a mark only let alpha decay.
void DcqcnController::update_alpha(Instant now) {
  int64_t ticks = (now - started_at_).ns() / constants_.alpha_period.ns() - alpha_ticks_;
  alpha_ticks_ += ticks;
  if (ticks > 0 && marked_) {
    alpha_ += constants_.gain * (1 - alpha_);
    marked_ = false;
    --ticks;
  }
  alpha_ *= power(1 - constants_.gain, ticks);
}

// Consecutive cuts without an increase between them are one congestion event: the target stays.
void DcqcnController::cut(Instant at) {
  update_alpha(at);
  if (stage_ > 0) target_bps_ = rate_bps_;
  rate_bps_ = std::max(rate_bps_ * (1 - alpha_ / 2), min_bps_);
  stage_ = 0;
  next_cut_ = Instant::never();
  next_increase_ = at + constants_.increase_period;
}

void DcqcnController::increase() {
  if (stage_ >= constants_.fast_recovery) {
    target_bps_ += stage_ == constants_.fast_recovery ? additive_bps_ : hyper_bps_;
    target_bps_ = std::min(target_bps_, line_bps_);
  }
  rate_bps_ = (rate_bps_ + target_bps_) / 2;
  ++stage_;
  next_increase_ = next_increase_ + constants_.increase_period;
  if (line_bps_ - rate_bps_ >= 1) return;
  rate_bps_ = line_bps_;
  next_increase_ = Instant::never();
}

}  // namespace pacecar
