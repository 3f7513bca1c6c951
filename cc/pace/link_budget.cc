#include "cc/pace/link_budget.h"

#include <limits>
#include <utility>

#include "cc/pace/phase.h"

namespace pacecar {
namespace {

// --- measuring ---
constexpr int64_t kJittersPerWindow = 10;  // arrivals on a host with jitter
constexpr Bytes kPacketsPerWindow = 16;
constexpr int64_t kIdleWindows = 32;  // after which the budget starts again, as after
constexpr double kIdlePackets = 8;    // at the present rate, and
constexpr int64_t kIdleDelays = 4;    // of the last arrivals

// --- the usual delay: flows meet, end hosts are late ---
constexpr double kMeeting = 0.5;    // packets of each of the host's processes
constexpr int64_t kUsualShare = 8;  // of a round trip
constexpr double kOwnPart = 0.25;   // of a packet: each user's in the queue

// --- the law ---
constexpr int64_t kDoubtWindows = 3;     // before a rate is doubted: others may re-route, or end
constexpr uint32_t kLateLooks = 2;       // in a row, on hosts with jitter
constexpr double kFull = 7.0 / 8;        // of the nominal rate: what arrives fills the link
constexpr double kLeast = 1e5;           // bit/s: a packet within a second, to notice a change
constexpr int64_t kDrainRoundTrips = 2;  // to drain what is beyond T
constexpr int64_t kStopWindows = 4;      // a longer queue is that of a link that had stopped
constexpr double kLasting = 0.25;        // of the cut: remains then
constexpr double kLeastFactor = 0.5;
constexpr double kDrained = 0.75;      // a delay below this, of that at the last cut, is falling
constexpr double kUsed = 0.85;         // of the budget, to grow
constexpr int64_t kBurstyWindows = 3;  // later, if only bursts use it
constexpr double kIncrease = 0.25;     // packets per window
constexpr double kLevel = 1.0 / 8;     // of the distance to the fair part, per window
constexpr double kBelowBound = 0.75;
constexpr double kAboveBound = 1.1;
constexpr double kFast = 1.25;        // growth from the first rate, or far below what it has given
constexpr double kProbe = 1.0 / 128;  // doubles with each growth beyond that
constexpr uint32_t kMostCalm = 4;

// --- with a greedy neighbor ---
constexpr double kHeldPart = 0.5;  // of the link, with one other
constexpr double kManyUsers = 16;  // users of our law behind one link
constexpr double kGiven = 0.75;    // of what we hold, at least
constexpr int64_t kGivenRoundTrips = 8;
constexpr double kSwiftDecrease = 0.8;

// --- the empty path ---
constexpr double kDip = 0.75;
constexpr int64_t kDipsPerMemory = 4;
constexpr int64_t kDipTargets = 4;

Duration time_at(double bps, double bytes) {
  return Duration::from_ns(static_cast<int64_t>(bytes * 8e9 / bps));
}

double ratio(Duration a, Duration b) {
  return static_cast<double>(a.ns()) / static_cast<double>(b.ns());
}

}  // namespace

LinkBudget::LinkBudget(const LinkBudgetConfig& config)
    : config_(config),
      window_(std::max({config.round_trip, config.jitter * kJittersPerWindow,
                        config.line.time_for(config.packet * kPacketsPerWindow)})),
      nominal_(static_cast<double>(config.line.bps())),
      round_trip_(config.round_trip),
      part_(nominal_),
      rate_(config.first > Rate() ? std::min(static_cast<double>(config.first.bps()), nominal_)
                                  : nominal_),
      meter_(window_, config.round_trip, config.packet),
      witnesses_(window_),
      last_(Instant::from_ns(std::numeric_limits<int64_t>::min() / 2)),
      starting_(rate_ < nominal_),
      shown_(rate_) {}

double LinkBudget::rate() const { return std::min(rate_ * yielded_, part_); }

Duration LinkBudget::idle_limit() const {
  const Duration packets = time_at(rate_, kIdlePackets * static_cast<double>(config_.packet));
  return std::max(window_ * kIdleWindows, packets) + ArrivalMeter::kLongestLook +
         delay_ * kIdleDelays;
}

// Starts again after a long pause: with the nominal rate or, if b began below it, with what the
// link gave at the last cut.
void LinkBudget::begin(Instant now) {
  rate_ = config_.first > Rate() ? std::max(rate_, bound_) : nominal_;
  calm_ = 0;
  yielded_ = 1;
  forget_bursts();
  neighbor_.forget();
  witnesses_.forget();
  meter_.begin(now);
  next_cut_ = next_growth_ = now + window_;
}

bool LinkBudget::on_bytes(Instant now, Bytes wire, Duration excess, uint32_t flow) {
  const Duration pause = now - last_;
  last_ = now;
  witnesses_.on_bytes(now, flow);
  note_burst(now, wire, excess);
  const Duration judged = config_.yields ? excess : Duration::max();
  if (pause > ArrivalMeter::kLongestLook && pause > idle_limit()) {
    begin(now);
  } else if (meter_.on_bytes(now, wire, judged)) {
    look(now);
  } else {
    return false;
  }
  const double before = std::exchange(shown_, rate());
  return shown_ != before;
}

void LinkBudget::set_weight(double mean, double share) {
  weight_ = mean * share;
  usual_packets_ = std::max(kUsualPackets, static_cast<int64_t>(kMeeting / share));
}

// The delay of a link that is well used.
Duration LinkBudget::usual() const {
  return (config_.jitter + config_.line.time_for(config_.packet) * usual_packets_ +
          round_trip_ / kUsualShare) *
         patience_;
}

// The delay at which users of this law with budgets of `rate` agree.
Duration LinkBudget::agreed(double rate) const {
  const Duration own = time_at(rate, kOwnPart * weight_ * static_cast<double>(config_.packet));
  return usual() + own * patience_;
}

// The delay up to which b is not cut.
Duration LinkBudget::target() const { return std::max(agreed(rate_), neighbor_.kept()); }

// The rate that is held against a greedy neighbor: half of the link, as far as known.
double LinkBudget::held_part() const { return std::min(kHeldPart * part_, most_); }

void LinkBudget::look(Instant now) {
  const Duration delay = meter_.delay();
  if (delay == Duration::max()) return grow(now, Duration());
  delay_ = delay;
  most_ = std::max(most_, std::min(meter_.rate(), nominal_));
  if (!learnt()) neighbor_.forget();
  const Duration among_many = agreed(std::max(rate_, most_ / kManyUsers));
  if (learnt() && neighbor_.look(now, delay, among_many, window_, std::min(rate_, meter_.rate()))) {
    rate_ = std::max(rate_, held_part());
    given_at_ = now;
  }
  // If the neighbor only fills what we leave, what we hold arrives; on a slow link it does not.
  if (meter_.most_lately() >= kGiven * rate_) given_at_ = now;
  if (now - given_at_ > (window_ + neighbor_.kept()) * kGivenRoundTrips) neighbor_.forget();
  yield_to_base(now);
  const bool empty = delay <= target() / 2;
  if (cut_delay_ > window_ * kStopWindows && empty) end_drain(now);
  if (learnt() && empty && witnesses_.gone(now)) restore(now);
  if (now >= yields_until_) yielded_ = 1;
  late_looks_ = delay > target() ? late_looks_ + 1 : 0;
  // On hosts with jitter a single look may be late.
  const bool queued = late_looks_ >= (config_.jitter > Duration() ? kLateLooks : 1);
  if (learnt() || doubted(now, queued && meter_.rate() < kFull * part_)) {
    if (queued) cut(now, delay);
    if (delay <= target()) grow(now, delay);
  }
  level(now);
}

// Whether the link carries less than its nominal rate: a queue of our own flows would have drained
// by now.
bool LinkBudget::doubted(Instant now, bool reason) {
  if (!reason) doubted_since_ = Instant::never();
  if (reason && doubted_since_ == Instant::never()) doubted_since_ = now;
  return reason && now - doubted_since_ >= window_ * kDoubtWindows;
}

void LinkBudget::slow_down(double rate) {
  rate_ = std::max(rate, std::min(kLeast, nominal_));
  starting_ = false;
  forget_bursts();
  calm_ = 0;
}

// The rate that arrives while a queue stands is all that the link gives us.
void LinkBudget::cut(Instant now, Duration delay) {
  if (now < next_cut_) return;
  next_cut_ = now + period() + round_trip_ / 2 + delay;  // when this cut shows, at the earliest
  next_growth_ = now + period();
  const bool falling = cut_delay_ > Duration() && ratio(delay, cut_delay_) < kDrained;
  cut_delay_ = delay;
  witnesses_.on_queue(now);
  if (falling) return;
  if (neighbor_.kept() > Duration()) {
    const double factor = 1 - kSwiftDecrease * (1 - ratio(target(), delay));
    const double held = std::min(rate_, held_part());
    return slow_down(std::max(rate_ * std::max(factor, kLeastFactor), held));
  }
  bound_ = std::min(rate_, meter_.most_lately());
  const Duration beyond = delay - target();
  const double drained = std::min(ratio(beyond, period() + delay) / kDrainRoundTrips, kLeastFactor);
  const double lasting = drained * (neighbor_.stays() ? 1 : kLasting);
  slow_down(bound_ * (1 - lasting));
  yield(1 - (drained - lasting), now + (period() + delay) * kDrainRoundTrips);
  next_growth_ = yields_until_ + period();
}

// The queue is gone early: a link that had stopped serves again.
void LinkBudget::end_drain(Instant now) {
  cut_delay_ = Duration();
  yields_until_ = std::min(yields_until_, now);
  next_growth_ = std::min(next_growth_, now + window_);
}

// The queue was on a path that the present flows do not take: the link is not known to be slow.
void LinkBudget::restore(Instant now) {
  rate_ = nominal_;
  witnesses_.forget();
  end_drain(now);
}

void LinkBudget::yield(double factor, Instant until) {
  yielded_ = factor;
  yields_until_ = until;
}

// Notes a burst at the budget that is longer than one that leaves at once at any rate, and longer
// than packets that meet by chance.
void LinkBudget::note_burst(Instant now, Bytes wire, Duration excess) {
  burst_.on_bytes(excess == Duration::max() ? now : now - excess, wire, kUsed * rate_);
  const Duration moment = pace_moment(config_.round_trip, config_.jitter);
  const double at_once = rate_ / 8 * moment.seconds();
  const auto least = static_cast<double>(config_.packet * kPacketsPerWindow);
  burst_used_ |= static_cast<double>(burst_.bytes()) >= std::max(at_once, least);
}

void LinkBudget::forget_bursts() {
  burst_used_ = false;
  burst_.forget();
}

// Whether the budget is used: mostly, or fully at times by an application that sends in bursts.
bool LinkBudget::used(Instant now) const {
  if (meter_.rate() >= kUsed * rate_) return true;
  return burst_used_ && now - next_growth_ >= window_ * kBurstyWindows;
}

void LinkBudget::grow(Instant now, Duration delay) {
  cut_delay_ = Duration();
  if (now < next_growth_ || rate_ >= nominal_ || !used(now)) return;
  next_growth_ = now + period() + delay;
  forget_bursts();
  const double packet = static_cast<double>(config_.packet) * 8 * weight_;
  if (neighbor_.kept() > Duration()) {
    rate_ = std::min(rate_ + packet / (window_ + delay).seconds(), nominal_);
    return;
  }
  const double missing = 1 - ratio(delay, target());
  const bool empty = missing > 0.5;
  const bool far_below = starting_ || rate_ < kBelowBound * bound_;
  calm_ = empty && rate_ > kAboveBound * bound_ ? std::min(calm_ + 1, kMostCalm) : 0;
  double grown = rate_ + missing * kIncrease * packet / window_.seconds();
  if (empty && far_below) {
    grown = rate_ * kFast;
  } else if (empty) {
    grown = std::max(grown, rate_ * (1 + kProbe * (1 << calm_)));
  }
  rate_ = std::min(grown, nominal_);
  starting_ = starting_ && rate_ < nominal_;
}

// Moves b towards the fair part of the sum of the budgets that the host's processes have learnt.
void LinkBudget::level(Instant now) {
  if (config_.host_link == nullptr) return;
  const bool counts = learnt() && !starting_ && meter_.rate() >= kUsed * rate();
  if (counts && now < next_level_) return;
  next_level_ = now + window_;
  const Rate own = Rate::from_bps(counts ? static_cast<uint64_t>(rate_) : 0);
  const auto fair = static_cast<double>(config_.host_link->fair_part(own).bps());
  if (counts)
    rate_ = std::clamp(rate_ + kLevel * (fair - rate_), std::min(kLeast, nominal_), nominal_);
}

// A queue that never empties is mistaken for the path, after base_memory or at once by a process
// that starts late. So all processes of a host use less at the same moments, by its clock: none
// takes what another leaves free.
void LinkBudget::yield_to_base(Instant now) {
  const int64_t period = now.ns() * kDipsPerMemory / config_.base_memory.ns();
  if (period == period_) return;
  period_ = period;
  if (learnt() && !starting_) yield(kDip, now + window_ + target() * kDipTargets);
}

}  // namespace pacecar
