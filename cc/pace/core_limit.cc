#include "cc/pace/core_limit.h"

#include <algorithm>

namespace pacecar {
namespace {

constexpr double kTopGrowth = 1.0 / 8;
constexpr double kLeastShare = 1.0 / 256;  // of the line rate
// Losses of so much of a round trip's bytes are congestion, also without delay; fewer are the
// cable's.
constexpr double kManyLosses = 0.05;
constexpr double kTimeoutFactor = 0.5;
constexpr Duration kBaseMemory = Duration::from_s(1);
// A sample above this says "stuck", whatever its value.
constexpr Duration kMaxRtt = Duration::from_s(1);

}  // namespace

CoreLimit::CoreLimit(const FlowEnvironment& environment, const PaceConstants& constants)
    : constants_(constants),
      line_(static_cast<double>(environment.line_rate.bps())),
      jitter_(environment.jitter),
      base_(base_round_trip(environment)),
      rate_(line_ * constants.core_start),
      top_(line_) {}

bool CoreLimit::on_ack(const AckSample& sample) {
  acked_ += sample.acked;
  if (sample.rtt > Duration()) {
    const Duration rtt = std::min(sample.rtt, kMaxRtt);
    observe_base(sample.now, rtt);
    const Duration delay = rtt - base_;
    const auto limit =
        static_cast<int64_t>(static_cast<double>(base_.ns()) * constants_.core_delay);
    const Duration target = std::max(Duration::from_ns(limit), jitter_);
    ++heard_;
    if (delay > target || (sample.echo_marked && delay * 2 > target)) {
      ++bad_;
      bad_delay_ns_ += static_cast<double>(delay.ns());
    }
  }
  return round_trip_(sample) && judge();
}

// A path may become longer for good: the least round trip is forgotten after a while.
void CoreLimit::observe_base(Instant now, Duration rtt) {
  if (!measured_) {
    measured_ = true;
    base_since_ = now;
    base_ = rtt;
  } else if (now - base_since_ >= kBaseMemory) {
    base_since_ = now;
    base_ = next_base_;
    next_base_ = rtt;
  }
  next_base_ = std::min(next_base_, rtt);
  base_ = std::min(base_, rtt);
}

void CoreLimit::restart(double bps) {
  rate_ = std::min(rate_, bps);
  top_ = line_;
}

bool CoreLimit::on_loss(const LossSample& sample) {
  lost_ += sample.lost;
  return false;
}

bool CoreLimit::on_timeout() { return decrease(kTimeoutFactor); }

// A round trip is over.
bool CoreLimit::judge() {
  const double before = rate_;
  const bool losses =
      static_cast<double>(lost_) > kManyLosses * static_cast<double>(acked_ + lost_);
  if (bad_ * 2 > heard_) {
    const double delay = bad_delay_ns_ / bad_;
    const double target = std::max(static_cast<double>(base_.ns()) * constants_.core_delay,
                                   static_cast<double>(jitter_.ns()));
    const double excess = std::max(delay - target, 0.0) / std::max(delay, 1.0);
    decrease(std::max(1 - constants_.core_decrease * excess, constants_.core_least));
  } else if (losses) {
    decrease(constants_.core_least);
  } else {
    top_ = std::min(line_, top_ * (1 + kTopGrowth));
    rate_ += constants_.core_recover * (top_ - rate_);
    if (rate_ > top_ * 0.999) rate_ = top_;
  }
  heard_ = bad_ = 0;
  bad_delay_ns_ = 0;
  acked_ = lost_ = 0;
  return rate_ != before;
}

bool CoreLimit::decrease(double factor) {
  top_ = rate_;
  rate_ = std::max(rate_ * factor, line_ * kLeastShare);
  return true;
}

}  // namespace pacecar
