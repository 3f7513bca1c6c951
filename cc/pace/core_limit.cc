#include "cc/pace/core_limit.h"

#include <utility>

namespace pacecar {
namespace {

constexpr int64_t kBinsPerUnit = 4;
// Bursts of other flows that may be queued before ours although no path is full.
constexpr int64_t kBurstsMet = 6;
// Factor of T for slow flows: 1 from 0.7 of the line rate on, 3 at 0.4.
constexpr double kSlowScale = 0.5;
constexpr double kMostScale = 3;
// Bad round trips in a row before the flow slows down.
constexpr uint32_t kPatience = 2;
constexpr uint32_t kPatienceRerouting = 16;
constexpr int64_t kDenseRoundTrips = 3;
constexpr uint32_t kFewPackets = 8;  // prove nothing about a path

// If this share of a round trip is lost, it is congestion even without delay; less is the cable.
constexpr double kManyLosses = 0.05;
// Feedback that is needed after the first trimmed packet before trimming counts.
constexpr Bytes kTrimPackets = 32;
constexpr Bytes kTrimBursts = 8;
constexpr int64_t kTrimRoundTrips = 2;  // trims within them count together
constexpr double kLeastPassed = 0.25;   // of the sent bytes; a smaller share may be chance

constexpr double kNearLine = 0.99;
constexpr double kLeastShare = 1.0 / 256;  // of the line rate
constexpr double kStep = 1.0 / 64;         // of the line rate; doubles while paths are empty
constexpr uint32_t kMostCalm = 4;

constexpr Duration kBaseMemory = Duration::from_s(1);

}  // namespace

CoreLimit::CoreLimit(const FlowEnvironment& environment, const PaceConstants& constants)
    : constants_(constants),
      line_(environment.line_rate.real_bps()),
      wire_(static_cast<double>(environment.mtu + environment.overhead) /
            static_cast<double>(environment.mtu)),
      trims_believed_(
          std::max(environment.mtu * kTrimPackets, environment.burst_bytes * kTrimBursts)),
      least_unit_(std::max({environment.jitter,
                            environment.line_rate.time_for(environment.burst_bytes) * kBurstsMet,
                            Duration::from_ns(kBinsPerUnit)})),
      jitter_(environment.jitter),
      base_known_(environment.base_rtt > Duration()),
      last_hop_seen_(environment.receivers_time_arrivals),
      rate_{.lasting = line_ * constants.core_start, .until = {}} {
  set_base(base_round_trip(environment));
}

void CoreLimit::set_base(Duration base) {
  base_ = base;
  const Duration unit = std::max(base.scaled(constants_.core_delay), least_unit_);
  if (std::exchange(unit_, unit) != unit) forget();  // delays are counted in it
}

double CoreLimit::least() const { return std::min(rate_.lasting, line_ * kLeastShare); }

// A slow flow tolerates more delay than a fast one behind the same queue, so their rates converge.
Duration CoreLimit::target() const {
  const double slowness = line_ / rate_.lasting;
  const double scale = std::clamp(slowness * slowness * kSlowScale, 1.0, kMostScale);
  return unit_.scaled(scale);
}

bool CoreLimit::on_ack(Instant now, const FlowSignal& ack, double rate) {
  const bool drained = rate_.poll(now);
  silent_ = false;
  const Duration rtt = std::min(ack.rtt, kMaxRtt);
  if (rtt > Duration()) observe_base(now, rtt);
  reroutes_ |= ack.rerouting;
  if (awaits_effect(ack.sent, ack.in_flight)) return drained;
  if (acked_ == 0) began_ = now;
  acked_ += ack.acked;
  passed_ += ack.acked;
  fastest_ = std::max(fastest_, rate);
  if (rtt > Duration()) {
    const Duration delay = rtt - base_;
    // A mark shows a queue, too: it counts as half of the delay that makes a packet late.
    const Duration counted = ack.echo_marked ? delay + unit_ / 2 : delay;
    const int64_t bin = counted.ns() * kBinsPerUnit / unit_.ns();
    ++delays_[static_cast<size_t>(std::min<int64_t>(bin, kBins - 1))];
    least_ = std::min(least_, delay);
    ++samples_;
  }
  if (!round_trip_(ack) || samples_ < kFewPackets) return drained;
  const double before = this->rate();
  judge(now, ack.sent);
  return drained || this->rate() != before;
}

// True while signals are of packets that were sent before the last cut.
bool CoreLimit::awaits_effect(Bytes sent, Bytes in_flight) const {
  return sent_at_cut_ > 0 && sent - std::min(sent, in_flight) <= sent_at_cut_;
}

// A full queue passes what the path carries, and trimming reports the rest at once.
bool CoreLimit::on_loss(Instant now, const Loss& loss) {
  reroutes_ |= loss.rerouting;
  if (awaits_effect(loss.sent, loss.in_flight)) return false;
  lost_ += loss.lost;
  if (loss.kind != LossKind::kTrimmed || reroutes_) return false;
  if (trimmed_ == 0 || now - trimmed_since_ > base_ * kTrimRoundTrips) {
    trimmed_since_ = now;
    trimmed_ = passed_ = 0;
  }
  trimmed_ += loss.lost;
  if (passed_ + trimmed_ < trims_believed_) return false;
  const double passed = static_cast<double>(passed_) / static_cast<double>(passed_ + trimmed_);
  trimmed_ = passed_ = 0;
  if (passed > 1 - kManyLosses) return false;
  cut(now, rate_.lasting * std::max(passed, kLeastPassed), base_, loss.sent);
  return true;
}

// A path may become permanently longer: the least round trip is forgotten after kBaseMemory. Until
// then the expected round trip counts, because the first packets on a busy path would mistake its
// queue for its length. Where none is known, the first packet's counts: the hosts may be far apart.
void CoreLimit::observe_base(Instant now, Duration rtt) {
  if (!measured_) {
    measured_ = true;
    base_since_ = now;
    if (!base_known_) set_base(rtt);
  } else if (now - base_since_ >= kBaseMemory) {
    base_since_ = now;
    set_base(next_base_);
    next_base_ = rtt;
  }
  next_base_ = std::min(next_base_, rtt);
  if (rtt < base_) set_base(rtt);
}

void CoreLimit::restart(double rate) {
  before_ = rate_.lasting;
  rate_.lasting = std::min(before_, rate);
}

// Delays of the packets beyond the delay that all of them had.
CoreLimit::Delays CoreLimit::delays() const {
  const double target = this->target().real_ns();
  const auto quarter = static_cast<double>(unit_.ns() / kBinsPerUnit);
  // The delay that all packets share is that of the last hop, which the receiver drains. Without
  // jitter at most a round trip of it counts: a longer delay comes from a path.
  const Duration others = jitter_ > Duration() ? least_ : std::min(least_, base_);
  const double shared = last_hop_seen_ ? others.real_ns() : 0.0;
  Delays delays;
  double sum = 0;
  double sum_late = 0;
  for (size_t bin = 0; bin < kBins; ++bin) {
    const double beyond = std::max(static_cast<double>(bin) * quarter - shared, 0.0);
    sum += delays_[bin] * beyond;
    if (beyond + quarter <= target) continue;
    delays.late += delays_[bin];
    sum_late += delays_[bin] * beyond;
  }
  delays.mean_ns = sum / samples_;
  delays.mean_late_ns = sum_late / std::max(delays.late, 1U);
  return delays;
}

// Trouble counts only if it lasts: a queue at the last hop may just have formed, and a NIC that
// searches for better paths gets time to find one. Over a longer time the delays of a varying queue
// at the last hop look like core delays, and so does host jitter: such samples are not used.
void CoreLimit::judge(Instant now, Bytes sent) {
  const Delays delays = this->delays();
  const bool dense = now - began_ <= std::max(base_, jitter_) * kDenseRoundTrips;
  const bool late = delays.late * 2 > samples_;
  const bool lossy = static_cast<double>(lost_) > kManyLosses * static_cast<double>(acked_ + lost_);
  // The higher of two round trips: with bursts one round trip is a poor measure.
  const double span = std::max((now - began_).seconds(), base_.seconds() / 2);
  const double arrived = static_cast<double>(acked_) * 8 * wire_ / span;
  const double most = std::max(std::exchange(arrived_, arrived), arrived);
  clear_ = false;
  if (!dense || !(late || lossy)) {
    bad_round_trips_ = 0;
    recover(delays.mean_ns, dense || jitter_ == Duration());
  } else if (++bad_round_trips_ >= (reroutes_ ? kPatienceRerouting : kPatience)) {
    const double passed = static_cast<double>(acked_) / static_cast<double>(acked_ + lost_);
    // At least core_least of c_f: another limit may have made the flow send little.
    const double least = rate_.lasting * constants_.core_least;
    const double through = std::clamp(late ? most : rate_.lasting * passed, least, rate_.lasting);
    return cut(now, through, Duration::from_ns(static_cast<int64_t>(delays.mean_late_ns)), sent);
  }
  forget();
}

// While there is a queue, `through` is all that the paths carry for this flow.
void CoreLimit::cut(Instant now, double through, Duration delay, Bytes sent) {
  const double least = this->least();
  rate_.cut(now, through, delay - target(), base_ + delay);
  rate_.lasting = std::max(rate_.lasting, least);
  sent_at_cut_ = sent;
  before_ = 0;
  calm_ = bad_round_trips_ = 0;
  clear_ = false;
  forget();
}

void CoreLimit::forget() {
  delays_.fill(0);
  samples_ = 0;
  least_ = Duration::max();
  acked_ = lost_ = passed_ = trimmed_ = 0;
  fastest_ = 0;
}

void CoreLimit::recover(double mean_delay_ns, bool counts_delay) {
  const bool loaded = mean_delay_ns * kBinsPerUnit > unit_.real_ns();
  const double most = loaded ? constants_.core_loaded * line_ : line_;
  const double missing = 1 - mean_delay_ns / target().real_ns();
  const double room = counts_delay ? std::max(missing, -1.0) : 1;
  clear_ = !loaded;
  calm_ = loaded ? 0 : std::min(calm_ + 1, kMostCalm);
  const double step = line_ * kStep * (1 << calm_);
  rate_.lasting = std::max(rate_.lasting + room * step, least());
  if (rate_.lasting > kNearLine * most) rate_.lasting = most;
}

void CoreLimit::on_timeout(double rate) {
  if (std::exchange(silent_, true)) return;
  before_ = 0;
  const double reached = std::min(rate_.lasting, std::max(fastest_, rate));
  rate_.lasting = std::max(reached * kTimeoutFactor, least());
}

}  // namespace pacecar
