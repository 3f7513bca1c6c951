#include "cc/pace/link_budget.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace pacecar {
namespace {

// --- measuring ---
constexpr int64_t kJittersPerWindow = 10;  // arrivals on a host that is late by chance
constexpr Bytes kPacketsPerWindow = 16;
constexpr Bytes kPacketsPerLook = 6;  // fewer may all be late by chance
constexpr Bytes kFewPackets = 2;      // in a window
constexpr Duration kLongestLook = Duration::from_ms(50);
constexpr int64_t kIdleWindows = 32;  // after which nothing is known any more

// --- the delay that is usual: flows meet, end hosts are late ---
constexpr Bytes kUsualPackets = 4;
constexpr int64_t kUsualShare = 8;  // of a round trip

// --- the law ---
constexpr int64_t kDoubtWindows = 3;  // others may re-route, or end
constexpr double kFull = 7.0 / 8;       // of the told rate: what arrives fills the link
constexpr double kLeast = 1e5;          // bit/s: a packet within a second, to see how things are
constexpr double kDrainRoundTrips = 2;  // in which what is beyond T is drained
constexpr double kLeastFactor = 0.5;
constexpr double kUsed = 0.85;      // of the budget, to grow
constexpr double kIncrease = 0.25;  // packets per window
constexpr double kBelowBound = 0.75;
constexpr double kAboveBound = 1.1;
constexpr double kRecovery = 1.25;    // of what is far below what the link has given
constexpr double kProbe = 1.0 / 128;  // doubles with each growth without a queue
constexpr uint32_t kMostCalm = 4;
constexpr double kStart = 1.5;
constexpr double kDrained = 0.75;  // a delay that has fallen to this since the last cut is falling

// --- losses without delay ---
constexpr double kPoliced = 0.01;
constexpr uint32_t kLossyWindows = 3;  // in a row
constexpr double kBelowPolicer = 0.95;
constexpr int64_t kPolicedWindows = 16;  // without growth

// --- greedy neighbors ---
constexpr int64_t kGreedyDelay = 4;  // times T
constexpr int64_t kGreedyRoundTrips = 8;
constexpr Duration kGreedyHeld = Duration::from_s(1);
constexpr int64_t kGreedyHeldRoundTrips = 32;
constexpr double kFairPart = 0.5;  // ours, and one other's

// --- the empty path ---
constexpr double kDip = 0.75;
constexpr int64_t kDipTargets = 4;

Duration scaled(Duration d, double factor) {
  return Duration::from_ns(static_cast<int64_t>(static_cast<double>(d.ns()) * factor));
}

Duration time_at(double bps, Bytes bytes) {
  return Duration::from_ns(static_cast<int64_t>(static_cast<double>(bytes) * 8e9 / bps));
}

}  // namespace

LinkBudget::LinkBudget(const LinkBudgetConfig& config)
    : config_(config),
      window_(std::max({config.round_trip, config.jitter * kJittersPerWindow,
                        config.line.time_for(config.packet * kPacketsPerWindow)})),
      look_(window_ / static_cast<int64_t>(kLooks)),
      line_(static_cast<double>(config.line.bps())),
      rate_(config.first > Rate() ? std::min(static_cast<double>(config.first.bps()), line_)
                                  : line_),
      starting_(config.first > Rate()),
      shown_(rate_) {}

void LinkBudget::set_line(double line) {
  // A budget that was not what limits stays so.
  rate_ = learnt() ? std::min(rate_, line) : line;
  line_ = line;
}

double LinkBudget::rate() const { return last_ < dip_until_ ? rate_ * kDip : rate_; }

// What was known of a link that has not been used for long is of no use.
void LinkBudget::begin(Instant now) {
  const bool unknown = config_.first > Rate();
  const double first = unknown ? std::min(static_cast<double>(config_.first.bps()), line_) : line_;
  rate_ = std::max(rate_, first);
  starting_ = unknown && learnt();
  calm_ = 0;
  greedy_ = {};
  served_.fill(0);
  began_ = served_since_ = empty_at_ = now;
  next_cut_ = next_growth_ = now + window_;
  bytes_ = sent_ = lost_ = 0;
  least_ = Duration::max();
}

bool LinkBudget::on_bytes(Instant now, Bytes wire, Duration excess) {
  if (last_ == Instant() || now - last_ > window_ * kIdleWindows + kLongestLook) begin(now);
  if (bytes_ == 0) {
    first_ = now;
    first_bytes_ = wire;
  }
  last_ = now;
  bytes_ += wire;
  least_ = std::min(least_, excess);
  const Duration lasted = now - began_;
  if (lasted < look_) return false;
  const Bytes enough = config_.packet * (lasted < window_ ? kPacketsPerLook : kFewPackets);
  if (bytes_ < enough && lasted < kLongestLook) return false;
  look(now);
  return std::exchange(shown_, rate()) != shown_;
}

// The delay that is no cause to slow down.
Duration LinkBudget::target() const {
  const Duration usual = config_.jitter + config_.line.time_for(config_.packet * kUsualPackets) +
                         config_.round_trip / kUsualShare;
  const Duration target = (usual + time_at(rate_, config_.packet * weight_)) * patience_;
  return std::max(target, greedy_.kept);
}

double LinkBudget::arriving() const {
  if (last_ - first_ < look_ / 2) return 0;
  return static_cast<double>(bytes_ - first_bytes_) * 8 / (last_ - first_).seconds();
}

void LinkBudget::remember(double arriving) {
  if (last_ - served_since_ >= window_) {
    served_since_ = last_;
    serving_ = (serving_ + 1) % kServed;
    served_[serving_] = 0;
  }
  served_[serving_] = std::max(served_[serving_], arriving);
}

double LinkBudget::served() const { return *std::max_element(served_.begin(), served_.end()); }

// Of the looks within a window: of those who took several paths, some met no queue elsewhere.
Duration LinkBudget::least_lately(Instant now) {
  seen_[seeing_] = {now, least_};
  seeing_ = (seeing_ + 1) % kLooks;
  Duration least = Duration::max();
  for (const Seen& one : seen_) {
    if (now - one.at < window_) least = std::min(least, one.least);
  }
  return least;
}

void LinkBudget::look(Instant now) {
  const double arriving = this->arriving();
  const Duration delay = least_lately(now);
#ifdef TRACE_BUDGET
  if (getenv("TB"))
    fprintf(stderr, "%p x%ld t=%.3f ms d=%.0f us T=%.0f a=%.4g b=%.4g bound=%.3g kept=%.0f\n",
            (void*)this, patience_, now.ns() / 1e6 - 1000, delay.us(), target().us(),
            arriving / 1e9, rate_ / 1e9, bound_ / 1e9, greedy_.kept.us());
#endif
  const bool policed = policed_lately(now);
  if (arriving > 0) remember(arriving);
  began_ = now;
  bytes_ = 0;
  least_ = Duration::max();
  if (delay == Duration::max()) return;
  watch_neighbors(now, delay);
  yield_to_base(now, delay);
  const bool queued = delay > target();
  if (policed && !queued) {
    police(now);
  } else if (learnt() || doubted(now, queued && arriving < kFull * line_)) {
    queued ? cut(now, delay, arriving) : grow(now, delay, arriving);
  }
  rate_ = std::max(rate_, std::min(kLeast, line_));
}

// Whether the link is less than told: a queue of our own making is gone soon.
bool LinkBudget::doubted(Instant now, bool reason) {
  if (!reason) doubted_since_ = Instant::never();
  if (reason && doubted_since_ == Instant::never()) doubted_since_ = now;
  return reason && now - doubted_since_ >= window_ * kDoubtWindows;
}

// A policer drops in every window in which more is sent than it lets through; bytes are lost by
// chance in some.
bool LinkBudget::policed_lately(Instant now) {
  sent_ += bytes_;
  if (now - loss_since_ < window_) return false;
  lossy_windows_ =
      static_cast<double>(lost_) > kPoliced * static_cast<double>(sent_) ? lossy_windows_ + 1 : 0;
  loss_since_ = now;
  sent_ = lost_ = 0;
  return lossy_windows_ >= kLossyWindows;
}

void LinkBudget::police(Instant now) {
  if (now < next_cut_ || served() <= 0) return;
  rate_ = std::min(rate_, kBelowPolicer * served());
  starting_ = false;
  calm_ = 0;
  next_cut_ = now + window_;
  next_growth_ = now + window_ * kPolicedWindows;
}

// What arrives while a queue stands is all that the link gives us.
void LinkBudget::cut(Instant now, Duration delay, double arriving) {
  calm_ = 0;
  starting_ = false;
  if (now < next_cut_ || arriving <= 0) return;
  next_cut_ =
      now + window_ + config_.round_trip / 2 + delay;  // when this one shows, at the earliest
  next_growth_ = now + window_;
  const bool falling = cut_delay_ > Duration() && delay < scaled(cut_delay_, kDrained);
  cut_delay_ = delay;
  if (falling) return;
  rate_ = bound_ = std::min(rate_, served());
  const double beyond = (delay - target()).seconds();
  rate_ *= std::max(1 - beyond / (kDrainRoundTrips * (window_ + delay).seconds()), kLeastFactor);
}

void LinkBudget::grow(Instant now, Duration delay, double arriving) {
  cut_delay_ = Duration();
  if (now < next_growth_ || !learnt() || arriving < kUsed * rate_) return;
  next_growth_ = now + window_ + delay;
  const bool empty = delay < target() / 2;
  const bool far_below = starting_ || rate_ < kBelowBound * bound_;
  calm_ = empty && rate_ > kAboveBound * bound_ ? std::min(calm_ + 1, kMostCalm) : 0;
  const double step = kIncrease * static_cast<double>(config_.packet) * 8 * weight_;
  double grown = rate_ + step / window_.seconds();
  if (empty && far_below) {
    grown = rate_ * (starting_ ? kStart : kRecovery);
  } else if (empty) {
    grown = std::max(grown, rate_ * (1 + kProbe * (1 << calm_)));
  }
  rate_ = std::min(grown, line_);
  starting_ = starting_ && learnt();
}

// Suspected: the delay is far beyond what users of this law agree on. Recognized: it has stayed
// there for some round trips although we yielded.
void LinkBudget::watch_neighbors(Instant now, Duration delay) {
  Greedy& g = greedy_;
  if (g.kept > Duration()) {
    if (now >= g.until) {
      g = {};
    } else if (delay < g.kept / 2) {
      g.kept = delay;
    }
    return;
  }
  if (!g.suspected) {
    if (delay > target() * kGreedyDelay) {
      g = {.suspected = true, .since = now, .delay = delay, .rate = std::max(rate_, served())};
    }
    return;
  }
  if (delay < scaled(g.delay, kDrained)) {
    g = {};
    return;
  }
  g.delay = std::max(g.delay, delay);
  g.sum_ns += static_cast<double>(delay.ns());
  ++g.looks;
  if (now - g.since < (window_ + g.delay) * kGreedyRoundTrips) return;
  const Duration kept = Duration::from_ns(static_cast<int64_t>(g.sum_ns / g.looks));
  rate_ = std::max(rate_, kFairPart * std::min(g.rate, line_));
  g.kept = kept;
  g.until = now + std::max(kGreedyHeld, (window_ + kept) * kGreedyHeldRoundTrips);
}

// A queue that never empties would in time be taken for the path. All processes of a host look at
// the same moments, by its clock, so that what one leaves free is not taken by the next.
void LinkBudget::yield_to_base(Instant now, Duration delay) {
  if (delay < target() / 4) empty_at_ = now;
  const int64_t period = now.ns() * 2 / config_.base_memory.ns();
  if (period == period_) return;
  period_ = period;
  if (!learnt() || now - empty_at_ < config_.base_memory / 2) return;
  dip_until_ = now + window_ + target() * kDipTargets;
}

}  // namespace pacecar
