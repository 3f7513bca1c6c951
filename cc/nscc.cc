#include "cc/nscc.h"

#include <algorithm>
#include <utility>

#include "cc/rate_law.h"

namespace pacecar {
namespace {

Duration duration(double ns) { return Duration::from_ns(static_cast<int64_t>(ns)); }

bool passed(const std::optional<Instant>& since, double span, Instant now) {
  return !since || (now - *since).real_ns() > span;
}

}  // namespace

NsccController::NsccController(const FlowEnvironment& environment, const Constants& constants)
    : NsccController(environment, constants, 1) {}

NsccController::NsccController(const FlowEnvironment& environment, const Constants& constants,
                               size_t median_of)
    : GrantedController(environment),
      environment_(environment),
      constants_(constants),
      packet_(static_cast<double>(environment.mtu + environment.overhead)),
      line_(environment.line_rate.real_bps() / 8e9),
      round_trip_(base_round_trip(environment).real_ns()),
      least_rtt_(round_trip_),
      median_of_(median_of) {
  target_ =
      round_trip_ * (environment.trimming ? constants.target_trimming : constants.target_dropping);
  const double a = line_ * round_trip_ / constants.scale_bytes;
  const double b = target_ / constants.scale_delay.real_ns();
  const double payload = static_cast<double>(environment.mtu);
  fair_ = constants.fair_increase * payload * a;
  proportional_ = constants.proportional_increase * payload * a * b / target_;
  steady_ = constants.steady_increase * payload * a;
  fast_ = constants.fast_increase * a;
  window_ = window_max();
}

double NsccController::window_max() const {
  return std::max(constants_.window_round_trips * line_ * least_rtt_, packet_);
}

double NsccController::on_wire(Bytes payload) const {
  return static_cast<double>(payload) * packet_ / static_cast<double>(environment_.mtu);
}

void NsccController::on_ack(Instant now, const FlowSignal& ack) {
  const double acked = on_wire(ack.acked);
  achieved_ += acked;
  acked_ += acked;
  settling_ -= acked;
  const Signal signal{.now = now,
                      .marked = ack.echo_marked,
                      .delay = observe_delay(ack),
                      .in_flight = on_wire(ack.in_flight)};
  if (quick_adapt(signal)) return;
  react(signal, acked);
  clip();
  apply_increases(now);
  clip();
}

// A trimmed packet lowers the window by its size, unless quick adapt reacts to it. A missing packet
// always does: it was given up a timeout after it was sent, too late for quick adapt.
void NsccController::on_loss(Instant now, const Loss& loss) {
  const double lost = on_wire(loss.lost);
  if (loss.kind == LossKind::kTrimmed) {
    settling_ -= lost;
    observe_least(loss.rtt);
    average_in(round_trip_);
    adapt_wanted_ = true;
    Signal signal;
    signal.now = now;
    signal.marked = signal.lost = true;
    signal.in_flight = on_wire(loss.in_flight) + lost;
    if (quick_adapt(signal)) return;
  }
  window_ -= lost;
  clip();
}

void NsccController::observe_least(Duration rtt) {
  if (rtt > Duration()) least_rtt_ = std::min(least_rtt_, rtt.real_ns());
}

// A packet's queueing delay, or the median of several; without a usable round trip, the average.
double NsccController::observe_delay(const FlowSignal& ack) {
  if (ack.rtt <= Duration()) return average_delay_;
  observe_least(ack.rtt);
  const double delay = median(std::min(ack.rtt, kMaxRtt).real_ns() - least_rtt_);
  // Marks are set when a packet leaves: a long delay without one is that of a drained queue.
  const bool stale = !ack.echo_marked && delay > target_;
  average_in(stale ? constants_.stale_delay * least_rtt_ : delay);
  return delay;
}

// The mean of the middle two if the number of delays is even.
double NsccController::median(double newest) {
  std::shift_right(delays_.begin(), delays_.end(), 1);
  delays_[0] = newest;
  delays_seen_ = std::min(delays_seen_ + 1, kMedianOf);
  const auto half = static_cast<size_t>(window_ / packet_ / 2);
  const size_t count = std::min(std::clamp<size_t>(half, 1, median_of_), delays_seen_);
  std::array<double, kMedianOf> sorted = delays_;
  for (size_t i = 1; i < count; ++i) {  // at most four: by insertion
    for (size_t j = i; j > 0 && sorted[j] < sorted[j - 1]; --j) std::swap(sorted[j], sorted[j - 1]);
  }
  return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

void NsccController::average_in(double delay) {
  average_delay_ += constants_.delay_weight * (delay - average_delay_);
}

// If little gets through, the window becomes the bytes acknowledged in a period of about a base
// round trip and a target delay. The packets then in flight were sent before: until as many bytes
// are acknowledged or lost, further marks and losses are ignored.
bool NsccController::quick_adapt(const Signal& signal) {
  bool answered = signal.marked && settling_ > 0;
  if (!answered && passed(adapt_end_, 0, signal.now)) {
    const bool wanted =
        adapt_wanted_ || signal.lost || signal.delay > constants_.adapt_delay * target_;
    if (adapt_end_ && wanted && achieved_ < constants_.adapt_share * window_max()) {
      window_ = std::max(achieved_, packet_);
      settling_ = signal.in_flight;
      adapt_wanted_ = false;
      answered = true;
    }
    achieved_ = 0;
    adapt_end_ = signal.now + duration(least_rtt_ + target_);
  }
  if (answered) increases_ = acked_ = 0;
  return answered;
}

// The four cases of mark and delay; a mark with a short delay matters only for the choice of paths.
void NsccController::react(const Signal& signal, double acked) {
  const bool late = signal.delay >= target_;
  if (signal.marked) {
    if (late) decrease(signal.now);
  } else if (late) {
    increases_ += fair_ * acked;
  } else {
    increase(signal.delay, acked);
  }
}

void NsccController::increase(double delay, double acked) {
  if (delay < constants_.fast_below.real_ns()) {
    fast_acked_ += acked;
    growing_fast_ = growing_fast_ || fast_acked_ > window_;
  } else {
    fast_acked_ = 0;
    growing_fast_ = false;
  }
  if (growing_fast_) {
    window_ += fast_ * acked;
  } else {
    increases_ += proportional_ * acked * (target_ - delay);
  }
}

void NsccController::decrease(Instant now) {
  growing_fast_ = false;
  fast_acked_ = 0;
  if (average_delay_ <= target_ || !passed(last_decrease_, least_rtt_, now)) return;
  const double excess = (average_delay_ - target_) / average_delay_;
  window_ *= std::max(1 - constants_.decrease * excess, 1 - constants_.decrease_most);
  last_decrease_ = now;
}

void NsccController::apply_increases(Instant now) {
  const bool due = passed(last_update_, round_trip_, now);
  if (acked_ <= constants_.update_packets * packet_ && !due) return;
  window_ += increases_ / window_;
  if (due) {
    window_ += steady_;
    last_update_ = now;
  }
  increases_ = acked_ = 0;
}

void NsccController::clip() { window_ = std::clamp(window_, packet_, window_max()); }

FlowLimits NsccController::decide(Instant now) {
  const double payload = window_ * static_cast<double>(environment_.mtu) / packet_;
  own_.window = static_cast<Bytes>(payload + 0.5);
  own_.limited_by = window_ < window_max() ? LimitedBy::kNetwork : limit_at_line(environment_);
  return GrantedController::decide(now);
}

}  // namespace pacecar
