#include "cc/pace/link_estimate.h"

#include <cmath>
#include <limits>

namespace pacecar {
namespace {

// --- measuring ---
constexpr int64_t kUsualPackets = 4;       // of several flows meet by chance
constexpr int64_t kSpanPackets = 16;       // fewer arrivals may all be late by chance
constexpr int64_t kJittersPerWindow = 10;  // arrivals on a host with jitter
constexpr int64_t kIdleWindows = 32;       // without arrivals until b begins again; at least
constexpr double kIdlePackets = 8;         // packets at the present rate

// --- traffic that no grant covers, and the queue while b = C ---
constexpr double kNewest = 0.5;  // weight of the newest span in X
constexpr double kManyUncovered = 0.25;
constexpr double kMostDrain = 0.5;  // of the rate granted without draining

// --- the usual delay: flows meet, end hosts are late ---
constexpr int64_t kUsualShare = 8;  // of a round trip
constexpr double kOwnPart = 0.25;   // of a packet, which each user keeps in the queue
constexpr int64_t kPatience = 8;    // where the senders are the limit

// --- the law ---
constexpr int64_t kDoubtWindows = 3;      // before C is doubted: others may re-route, or end
constexpr uint32_t kLateLooks = 2;        // in a row, on hosts with jitter
constexpr double kLeast = 1e5;            // bit/s: a packet within a second, to notice a change
constexpr double kDrained = 0.75;         // a delay below this, of that at the last cut, is falling
constexpr double kUsed = 0.85;            // of b: counts among the host's processes
constexpr double kIncrease = 0.25;        // packets per window
constexpr double kLevel = 1.0 / 8;        // of the distance to the fair part, per window
constexpr double kNear = 3.0 / 8;         // of the rate at the last cut: b is near that rate
constexpr double kProbe = 1 + 1.0 / 128;  // growth of b near that rate
constexpr double kFast = 1.25;            // growth of b elsewhere

// --- with a greedy neighbor ---
constexpr int64_t kFarBeyond = 3;  // times the delay on which users of our law agree
constexpr double kManyUsers = 16;  // users of our law behind one link
constexpr double kHeldPart = 0.5;  // of the link, with one other
constexpr double kGiven = 0.75;    // of the rate that we hold: must arrive
constexpr double kSwiftDecrease = 0.8;
constexpr double kLeastFactor = 0.5;

Duration time_at(double bps, double bits) {
  return Duration::from_ns(static_cast<int64_t>(bits * 1e9 / bps));
}

}  // namespace

LinkEstimate::LinkEstimate(const FlowEnvironment& environment, Duration round_trip,
                           const PaceConstants& constants)
    : constants_(constants),
      host_link_(environment.host_link),
      nominal_(environment.line_rate.real_bps()),
      first_(environment.first_rate > Rate() ? std::min(environment.first_rate.real_bps(), nominal_)
                                             : nominal_),
      least_(std::min(kLeast, nominal_)),
      packet_bits_(static_cast<double>(environment.mtu + environment.overhead) * 8),
      packet_time_(environment.line_rate.time_for(environment.mtu + environment.overhead)),
      jitter_(environment.jitter),
      expected_round_trip_(round_trip),
      span_(std::max(round_trip, packet_time_ * kSpanPackets)),
      window_(std::max(span_, jitter_ * kJittersPerWindow)),
      round_trip_(round_trip),
      part_(nominal_),
      rate_{.lasting = first_, .until = {}},
      meter_(window_, round_trip, environment.mtu + environment.overhead),
      witnesses_(window_),
      last_(Instant::from_ns(std::numeric_limits<int64_t>::min() / 2)) {}

bool LinkEstimate::on_arrival(Instant now, Bytes wire, bool covered, Duration excess,
                              uint32_t flow) {
  const bool over = now - span_began_ >= span_;
  if (over) close_span(now);
  if (!covered) foreign_ += wire;
  least_excess_ = std::min(least_excess_, excess);

  const Duration pause = now - last_;
  last_ = now;
  witnesses_.on_bytes(now, flow);
  const double before = line();
  if (pause > ArrivalMeter::kLongestLook && pause > longest_pause()) {
    begin(now);
  } else if (meter_.on_bytes(now, wire, excess)) {
    look(now);
  }
  return over || line() != before;
}

// After a longer one b begins again.
Duration LinkEstimate::longest_pause() const {
  const Duration packets = time_at(rate_.lasting, kIdlePackets * packet_bits_);
  return std::max(window_ * kIdleWindows, packets) + ArrivalMeter::kLongestLook;
}

// A span without arrivals lasts until the next arrival, so its rate is lower.
void LinkEstimate::close_span(Instant now) {
  const double more =
      static_cast<double>(foreign_) * 8 / (now - span_began_).seconds() - uncovered_;
  uncovered_ += more * kNewest;
  const Duration usual = jitter_ + packet_time_ * kUsualPackets;
  const bool seen = least_excess_ < Duration::max();
  queue_ = seen ? std::max(least_excess_ - usual, Duration()) : Duration();
  span_began_ = now;
  foreign_ = 0;
  least_excess_ = Duration::max();
}

// Much uncovered traffic may keep the queue up, so draining leaves granted flows at least half.
double LinkEstimate::available(size_t flows) const {
  const double eta = flows <= 1 ? 1.0 : constants_.shared;
  const double line = this->line();
  const double least = constants_.least_share * line;
  const double granted = std::max(eta * line - uncovered_, least);
  if (learnt()) return granted;
  const double drain = line * queue_.seconds() / (constants_.drain_round_trips * span_.seconds());
  const double drained = granted - std::min(drain, kMostDrain * granted);
  return uncovered_ < kManyUncovered * line ? drained : std::max(drained, least);
}

// After a pause: the nominal rate or, if b began below it, the larger of b and the last cut's rate.
void LinkEstimate::begin(Instant now) {
  rate_ = {.lasting = first_ < nominal_ ? std::max(rate_.lasting, bound_) : nominal_, .until = {}};
  neighbor_ = {};
  witnesses_.forget();
  meter_.begin(now);
  next_cut_ = next_growth_ = now + window_;
}

// The delay at which users of this law with estimates of `rate` agree.
Duration LinkEstimate::agreed(double rate) const {
  const Duration usual = jitter_ + packet_time_ * kUsualPackets + round_trip_ / kUsualShare;
  const Duration own = time_at(rate, kOwnPart * weight_ * packet_bits_);
  return (usual + own) * (senders_limit_ ? kPatience : 1);
}

// The rate that is held against a greedy neighbor: half of the link, as far as known.
double LinkEstimate::held_part() const { return std::min(kHeldPart * part_, most_); }

void LinkEstimate::look(Instant now) {
  const Duration delay = meter_.delay();
  if (delay == Duration::max()) return grow(now, Duration());
  const double arrives = meter_.rate();
  most_ = std::max(most_, std::min(arrives, nominal_));
  rate_.poll(now);
  if (!learnt()) neighbor_ = {};
  const double among_many = std::max(rate_.lasting, most_ / kManyUsers);
  const bool stands = learnt() && delay > agreed(among_many) * kFarBeyond;
  const bool given = meter_.most_lately() >= kGiven * rate_.lasting;
  if (neighbor_.look(now, delay, stands, window_, std::min(rate_.lasting, arrives), given)) {
    rate_.lasting = std::max(rate_.lasting, held_part());
  }
  // The queue was on a path that the present flows do not take: the link is not known to be slow.
  if (learnt() && delay <= target() / 2 && witnesses_.gone(now)) {
    rate_ = {.lasting = nominal_, .until = {}};
    cut_delay_ = Duration();
    witnesses_.forget();
  }
  late_ = delay > target() ? late_ + 1 : 0;
  // On hosts with jitter a single look may be late.
  const bool queued = late_ >= (jitter_ > Duration() ? kLateLooks : 1);
  if (learnt() || doubted(now, queued && arrives < kFull * part_)) {
    if (queued) cut(now, delay);
    if (delay <= target()) grow(now, delay);
  }
  level(now);
}

// Whether the link carries less than nominal: a queue of our own flows would have drained by now.
bool LinkEstimate::doubted(Instant now, bool reason) {
  if (!reason) doubted_since_ = Instant::never();
  if (reason && doubted_since_ == Instant::never()) doubted_since_ = now;
  return reason && now - doubted_since_ >= window_ * kDoubtWindows;
}

// The rate that arrives while a queue stands is all that the link gives us.
void LinkEstimate::cut(Instant now, Duration delay) {
  if (now < next_cut_) return;
  next_cut_ = now + period() + round_trip_ / 2 + delay;  // when this cut shows, at the earliest
  next_growth_ = now + period();
  const bool falling = delay < cut_delay_.scaled(kDrained);
  cut_delay_ = delay;
  witnesses_.on_queue(now);
  if (falling) return;
  if (neighbor_.kept() > Duration()) {
    const double factor = 1 - kSwiftDecrease * (1 - target().real_ns() / delay.real_ns());
    const double held = std::min(rate_.lasting, held_part());
    rate_.lasting = std::max(rate_.lasting * std::max(factor, kLeastFactor), held);
  } else {
    bound_ = std::min(rate_.lasting, meter_.most_lately());
    rate_.cut(now, bound_, delay - target(), period() + delay);
    next_growth_ = rate_.until + period();
  }
  rate_.lasting = std::max(rate_.lasting, least_);
}

void LinkEstimate::grow(Instant now, Duration delay) {
  cut_delay_ = Duration();
  if (now < next_growth_ || rate_.lasting >= nominal_ || senders_limit_) return;
  next_growth_ = now + period() + delay;
  const double packet = packet_bits_ * weight_;
  if (neighbor_.kept() > Duration()) {
    rate_.lasting = std::min(rate_.lasting + packet / (window_ + delay).seconds(), nominal_);
    return;
  }
  const double missing = 1 - delay.real_ns() / target().real_ns();
  const bool empty = missing > 0.5;
  const bool near = std::abs(rate_.lasting - bound_) <= kNear * bound_;
  double grown = rate_.lasting + missing * kIncrease * packet / window_.seconds();
  if (empty) grown = std::max(grown, rate_.lasting * (near ? kProbe : kFast));
  rate_.lasting = std::min(grown, nominal_);
}

// Moves b towards the fair part of the sum of the estimates that the host's processes have learnt.
void LinkEstimate::level(Instant now) {
  if (host_link_ == nullptr) return;
  const bool counts = learnt() && bound_ > 0 && meter_.rate() >= kUsed * line();
  if (counts && now < next_level_) return;
  next_level_ = now + window_;
  const Rate own = Rate::from_bps(counts ? static_cast<uint64_t>(rate_.lasting) : 0);
  const double fair = host_link_->fair_part(own).real_bps();
  if (!counts) return;
  rate_.lasting = std::clamp(rate_.lasting + kLevel * (fair - rate_.lasting), least_, nominal_);
}

}  // namespace pacecar
