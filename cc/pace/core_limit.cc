#include "cc/pace/core_limit.h"

#include <algorithm>

namespace pacecar {
namespace {

constexpr int64_t kBinsPerTarget = 4;
// Bad round trips in a row before the flow slows down.
constexpr uint32_t kPatience = 2;
constexpr uint32_t kPatienceRerouting = 16;
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
    // A mark, too, says that there is a queue: it counts as half of what makes a packet late.
    const Duration counted = sample.echo_marked ? delay + target() / 2 : delay;
    const int64_t bin = counted.ns() * kBinsPerTarget / target().ns();
    ++delays_[static_cast<size_t>(std::min<int64_t>(bin, kBins - 1))];
    least_ = std::min(least_, delay);
    ++heard_;
    reroutes_ |= sample.rerouting;
  }
  if (!round_trip_(sample) || heard_ < kFewPackets) return false;
  const double before = rate_;
  judge(sample.now);
  return rate_ != before;
}

// A path may become longer for good: the least round trip is forgotten after a while. What is
// expected counts until then: the first packets on a busy path would take its queue for its length.
void CoreLimit::observe_base(Instant now, Duration rtt) {
  if (!measured_) {
    measured_ = true;
    base_since_ = now;
  } else if (now - base_since_ >= kBaseMemory) {
    base_since_ = now;
    base_ = next_base_;
    next_base_ = rtt;
  }
  next_base_ = std::min(next_base_, rtt);
  base_ = std::min(base_, rtt);
}

void CoreLimit::restart(double rate) {
  before_ = rate_;
  rate_ = std::min(rate_, rate);
  top_ = line_;
}

// What packets met beyond the delay that all of them had.
CoreLimit::Delays CoreLimit::delays() const {
  const Duration target = this->target();
  const auto quarter = static_cast<double>(target.ns() / kBinsPerTarget);
  const auto shared =
      static_cast<double>(std::min(least_, std::max(base_, jitter_ * kBinsPerTarget)).ns());
  Delays delays;
  double sum = 0;
  double sum_late = 0;
  for (size_t bin = 0; bin < kBins; ++bin) {
    const double beyond = std::max(static_cast<double>(bin) * quarter - shared, 0.0);
    sum += delays_[bin] * beyond;
    if (beyond + quarter <= static_cast<double>(target.ns())) continue;
    delays.late += delays_[bin];
    sum_late += delays_[bin] * beyond;
  }
  delays.mean_ns = sum / std::max(heard_, 1U);
  delays.mean_late_ns = sum_late / std::max(delays.late, 1U);
  return delays;
}

// A round trip is over. Trouble counts when it lasts: a queue of the last hop may just have come,
// and a NIC that looks for better paths is given time to find one. Over a longer time the delays of
// a last hop that comes and goes look like those of the core.
void CoreLimit::judge(Instant now) {
  const Delays delays = this->delays();
  const bool dense = now - began_ <= std::max(base_, jitter_) * kDenseRoundTrips;
  const bool late = delays.late * 2 > heard_;
  const double sent = std::max(static_cast<double>(acked_ + lost_), fastest_ / 8 * base_.seconds());
  const bool lossy = static_cast<double>(lost_) > kManyLosses * sent;
  clear_ = false;
  if (!dense || !(late || lossy)) {
    bad_round_trips_ = 0;
    recover(delays.mean_ns);
  } else if (++bad_round_trips_ >= (reroutes_ ? kPatienceRerouting : kPatience)) {
    const auto target = static_cast<double>(this->target().ns());
    const double excess = std::max(delays.mean_late_ns - target, 0.0) / delays.mean_late_ns;
    const double factor = 1 - constants_.core_decrease * excess;
    decrease(fastest_, late ? std::max(factor, constants_.core_least) : constants_.core_least);
  }
  delays_.fill(0);
  heard_ = 0;
  least_ = Duration::max();
  acked_ = lost_ = 0;
  fastest_ = 0;
}

void CoreLimit::recover(double mean_delay_ns) {
  const bool loaded = mean_delay_ns * kBinsPerTarget > static_cast<double>(target().ns());
  const double most = loaded ? constants_.core_loaded * line_ : line_;
  troubled_ = false;
  clear_ = !loaded;
  if (rate_ > kNearTop * top_) top_ = line_;
  rate_ += constants_.core_recover * (std::min(top_, most) - rate_);
  if (rate_ > kNearLine * most) rate_ = most;
}

void CoreLimit::decrease(double from, double factor) {
  const double used = std::min(rate_, from);
  if (!troubled_) top_ = used;
  troubled_ = true;
  rate_ = std::max(used * factor, line_ * kLeastShare);
}

}  // namespace pacecar
