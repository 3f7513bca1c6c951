#include "cc/pace/core_limit.h"

#include <algorithm>

namespace pacecar {
namespace {

constexpr int64_t kBinsPerTarget = 4;
constexpr int64_t kDenseRoundTrips = 3;
constexpr uint32_t kFewPackets = 8;  // say nothing about a path

constexpr double kNearTop = 0.9;
constexpr double kNearLine = 0.99;
constexpr double kLeastShare = 1.0 / 256;  // of the line rate
// Losses of so much of a round trip's bytes are congestion, also without delay; fewer are the
// cable's.
constexpr double kManyLosses = 0.05;

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

Duration CoreLimit::target() const {
  const double share = static_cast<double>(base_.ns()) * constants_.core_delay;
  return std::max(
      {Duration::from_ns(static_cast<int64_t>(share)), jitter_, Duration::from_ns(kBinsPerTarget)});
}

bool CoreLimit::on_ack(const AckSample& sample, double rate) {
  if (acked_ == 0) began_ = sample.now;
  acked_ += sample.acked;
  fastest_ = std::max(fastest_, rate);
  if (sample.rtt > Duration()) {
    const Duration rtt = std::min(sample.rtt, kMaxRtt);
    observe_base(sample.now, rtt);
    const Duration delay = rtt - base_;
    const int64_t bin = delay.ns() * kBinsPerTarget / target().ns();
    ++delays_[static_cast<size_t>(std::min<int64_t>(bin, kBins - 1))];
    least_ = std::min(least_, delay);
    marked_ += sample.echo_marked ? 1 : 0;
    ++heard_;
  }
  if (!round_trip_(sample) || heard_ < kFewPackets) return false;
  const double before = rate_;
  judge(sample.now);
  return rate_ != before;
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

void CoreLimit::restart(double rate) {
  rate_ = std::min(rate_, rate);
  top_ = line_;
}

// A round trip is over: looks at the delays beyond what all packets had.
void CoreLimit::judge(Instant now) {
  const Duration target = this->target();
  const int64_t quarter = target.ns() / kBinsPerTarget;
  const Duration shared = std::min(least_, std::max(base_, jitter_ * kBinsPerTarget));
  const auto first =
      static_cast<size_t>(std::min<int64_t>((shared + target).ns() / quarter, kBins - 1));
  uint32_t bad = 0;
  double delay = 0;  // sum
  for (size_t bin = first; bin < kBins; ++bin) {
    bad += delays_[bin];
    delay +=
        delays_[bin] * (static_cast<double>(static_cast<int64_t>(bin) * quarter - shared.ns()));
  }
  const bool losses =
      static_cast<double>(lost_) > kManyLosses * static_cast<double>(acked_ + lost_);
  // Over a longer time the delays of a last hop that comes and goes look like those of the core.
  const bool dense = now - began_ <= std::max(base_, jitter_) * kDenseRoundTrips;
  const bool before = bad_;
  bad_ = dense && bad * 2 > heard_;
  if (bad_ && !before) {
    // Once may be a queue of the last hop that has just come.
  } else if (bad_) {
    const double mean = delay / bad;
    const double excess = std::max(mean - static_cast<double>(target.ns()), 0.0) / mean;
    decrease(fastest_, std::max(1 - constants_.core_decrease * excess, constants_.core_least));
  } else if (losses && dense) {
    decrease(fastest_, constants_.core_least);
  } else {
    troubled_ = false;
    if (rate_ > kNearTop * top_) top_ = line_;
    rate_ += constants_.core_recover * (top_ - rate_);
    if (rate_ > kNearLine * line_) rate_ = line_;
  }
  delays_.fill(0);
  heard_ = marked_ = 0;
  least_ = Duration::max();
  acked_ = lost_ = 0;
  fastest_ = 0;
}

void CoreLimit::decrease(double from, double factor) {
  const double used = std::min(rate_, from);
  if (!troubled_) top_ = used;
  troubled_ = true;
  rate_ = std::max(used * factor, line_ * kLeastShare);
}

}  // namespace pacecar
