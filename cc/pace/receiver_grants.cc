// PaceReceiver's grants: rates, phases, and when they are sent.
#include <algorithm>
#include <bit>
#include <cmath>

#include "cc/pace/phase.h"
#include "cc/pace/receiver.h"

namespace pacecar {
namespace {

constexpr Duration kLookInterval = Duration::from_us(1);
// A link in use for longer than a round trip and this will probably stay in use.
constexpr int64_t kBusyJitters = 8;
// The hold varies with the fan-in. On hosts with jitter, where a grant costs a datagram, changes by
// less than this factor are not advertised.
constexpr double kHoldSwing = 2;
// Granted beyond a flow's usable rate, as a share of that rate, so that the flow can announce more.
constexpr double kSlack = 1.0 / 16;
// Idle flows whose hold is advertised at a time, and how often: there may be many, none urgent.
constexpr uint32_t kHoldsAtATime = 16;
constexpr int64_t kHoldsPerRoundTrip = 4;
constexpr int64_t kRepeatsPerValidity = 4;  // three in a row may be lost
constexpr int64_t kWordShare = 100;         // Repeats take at most a hundredth of the link.
// Raises take at most a tenth: where many flows end one after another, each end raises all others.
constexpr int64_t kRaiseShare = 10;
constexpr int64_t kPausesPerValidity = 4;

Rate rate_of(double bps) { return Rate::from_bps(static_cast<uint64_t>(std::max(bps, 1.0))); }

}  // namespace

// `posted`: flows that could wake up; the application's hint may have fewer.
uint32_t PaceReceiver::expected(uint32_t posted) const {
  return fan_in_.expected(hinted_ == 0 ? posted : std::min(hinted_, posted));
}

Rate PaceReceiver::hold(uint32_t posted) const {
  const uint32_t flows = expected(posted);
  return rate_of(link_.available(flows) / flows);
}

Rate PaceReceiver::target(const Flow& f) const {
  if (!f.active()) return hold(posted_);
  const double usable = f.usable.real_bps();
  double rate = level_ == WaterFill::kNoLevel ? usable + spare_ * f.weight
                                              : std::min(level_ * f.weight, usable * (1 + kSlack));
  if (f.newcomer) rate = std::min(rate, hold(posted_).real_bps());
  if (f.phase != Phase::kLasting) rate = std::min(level_ * f.weight, f.granted.real_bps());
  return rate_of(std::min(rate, link_.line()));
}

Duration PaceReceiver::validity() const {
  const auto round_trips = static_cast<int64_t>(constants_.validity_round_trips);
  const size_t flows = std::max<size_t>(active_.size(), expected(posted_));
  return std::max({round_trip_ * round_trips, constants_.validity,
                   environment_.pause * kPausesPerValidity,
                   words_take(flows) * kWordShare * kRepeatsPerValidity});
}

// Time on the link of one grant to each of `flows` flows.
Duration PaceReceiver::words_take(size_t flows) const {
  return rate_of(link_.line()).time_for(kWordBytes * flows);
}

Instant PaceReceiver::repeat_at(const Flow& f) const {
  return f.sent + validity() / kRepeatsPerValidity;
}

// Whether a flow's hold is a guess: the fan-in is not known yet.
bool PaceReceiver::guesses(const Flow& f) const {
  return (!f.active() || f.newcomer) && !fan_in_.learned();
}

bool PaceReceiver::differs(const Flow& f, double tolerance) const {
  if (f.granted == Rate() || (phases_ && f.slot != f.sent_slot)) return true;
  if (f.sent_busy != (busy_ && !f.active())) return true;
  if (f.sent_guessed != guesses(f)) return true;
  const double granted = f.granted.real_bps();
  const double rate = target(f).real_bps();
  if (!f.active() && environment_.jitter > Duration()) {
    return std::max(rate, granted) > std::min(rate, granted) * kHoldSwing;
  }
  return std::abs(rate - granted) > tolerance * granted;
}

// Our slots follow the slots of the host's processes with lower places.
uint32_t PaceReceiver::first_slot() const {
  if (host_link_ == nullptr) return 0;
  const uint32_t together = std::max(expected(posted_), static_cast<uint32_t>(active_.size()));
  return host_link_->place() * std::bit_ceil(together);
}

GrantUpdate PaceReceiver::send(Instant now, uint32_t flow) {
  Flow& f = flows_[flow];
  const Rate before = f.granted;
  f.granted_before = before;
  f.granted = target(f);
  if (f.granted < before && f.phase != Phase::kLasting) {  // it will last longer
    f.phase = Phase::kLasting;
    advance(now, f);
    charge(f, limit(f));
  }
  f.sent = now;
  f.sent_slot = f.slot;
  ++f.epoch;
  if (f.active()) next_repeat_ = std::min(next_repeat_, repeat_at(f));
  GrantUpdate update{flow, grant(flow)};
  f.sent_busy = update.grant.busy = busy_ && !f.active();
  f.sent_guessed = update.grant.guessed;
  if (f.sent_busy) return update;
  const Bytes burst = pace_burst(f.granted, environment_);
  const double gap = pace_gap_ns(f.granted, burst, environment_.mtu, environment_.overhead);
  const double fraction = pace_fraction(first_slot() + f.slot);
  const double begun = (now - Instant() + environment_.grid_origin).real_ns();
  const double phase = modulo(fraction * gap - begun, gap);
  update.grant.aligned = true;
  update.grant.phase = Duration::from_ns(static_cast<int64_t>(phase));
  return update;
}

// A flow without a grant gets the hold of flows that wait for their first message.
Grant PaceReceiver::grant(uint32_t flow) const {
  const Flow& f = at(flow);
  return {.rate = f.granted == Rate() ? hold(posted_ + (f.posted == 0 ? 1 : 0)) : f.granted,
          .phase = {},
          .guessed = guesses(f),
          .validity = validity(),
          .epoch = f.epoch};
}

Instant PaceReceiver::next_deadline() const {
  if (stage_ != Stage::kDone || !due_.empty() || changed_) return next_look_;
  Instant next = active_.empty() ? Instant::never() : next_repeat_;
  if (raise_waits_) next = std::min(next, next_raise_);
  if (hold_left_ > 0) next = std::min(next, next_hold_);
  if (newcomers_) next = std::min(next, fan_in_.gathered());
  if (host_link_ != nullptr) next = std::min(next, host_link_->next_deadline());
  return std::max(next, next_look_);
}

size_t PaceReceiver::poll_grants(Instant now, std::span<GrantUpdate> updates) {
  if (!serving_) {
    changed_ |= host_link_ != nullptr && host_link_->due(now);
    if (now < next_deadline()) return 0;
    start_pass(now);
    serving_ = true;
  }
  size_t count = serve_pass(now, updates);
  if (count < updates.size()) count += serve_due(now, updates.subspan(count));
  if (count < updates.size()) {
    serving_ = false;
    if (now >= next_hold_) count += serve_holds(now, updates.subspan(count));
  }
  return count;
}

// Updates the link's state; starts to visit all active flows if the level moved or repeats are due.
void PaceReceiver::start_pass(Instant now) {
  next_look_ = now + kLookInterval;
  changed_ = false;
  const bool all_here = charged_ >= expected(posted_) && !others_may_begin();
  if (newcomers_ && (all_here || !fan_in_.gathering(now))) end_episode();
  if (host_link_ != nullptr) claim_part(now);
  if (charged_ > 0) {
    const double mean = static_cast<double>(fill_.weights()) / charged_;
    link_.set_use(fill_.limits(),
                  host_link_ != nullptr ? mean * host_link_->share_of_weights() : mean);
  }
  const double available = link_.available(active_.size());
  level_ = fill_.level(available);
  const double left = level_ == WaterFill::kNoLevel ? available - fill_.limits() : 0;
  spare_ = charged_ > 0 ? left / static_cast<double>(fill_.weights()) : 0;
  const double shown = level_ == WaterFill::kNoLevel ? -left : level_;
  const bool moved = std::abs(shown - passed_level_) > constants_.regrant * std::abs(passed_level_);
  const bool cuts = level_ != WaterFill::kNoLevel && (passed_level_ <= 0 || level_ < passed_level_);
  raise_waits_ = moved && !cuts && now < next_raise_;
  if ((moved && !raise_waits_) || now >= next_repeat_) {
    passed_level_ = shown;
    raise_waits_ = false;
    next_raise_ = now + words_take(active_.size()) * kRaiseShare;
    stage_ = Stage::kCuts;
  }
  look_at_busyness(now);
  const uint32_t flows = expected(posted_);
  const bool other_line =
      std::abs(link_.line() - holding_line_) > constants_.hold_regrant * holding_line_;
  if (flows != holding_for_ || other_line) {
    holding_for_ = flows;
    holding_line_ = link_.line();
    hold_left_ = used_;
  }
}

// Updates the part that this process may divide: while it receives, its part among the receiving
// processes of the host; otherwise its part if all ready processes began. Its idle flows begin with
// that part, so for a round trip it counts before the other processes have been cut.
void PaceReceiver::claim_part(Instant now) {
  const bool active = charged_ > 0;
  if (!active) claimed_since_ = Instant::never();
  if (active && claimed_since_ == Instant::never()) claimed_since_ = now;
  // While flows wake up, it claims for all that are expected.
  auto weight = static_cast<uint32_t>(fill_.weights());
  if (!active || newcomers_) weight = std::max(weight, expected(std::max(posted_, present_)));
  // Grants are less than the part they divide (eta, X, drain): a part that followed the grants
  // would shrink each time.
  const double granted = link_.available(active_.size()) / link_.line();
  const Rate demand = std::min(rate_of(fill_.limits() / granted), environment_.line_rate);
  const LinkClaim claim{
      .demand = active ? demand : Rate(), .weight = weight, .ready = present_ > 0};
  if (claim != claim_ || host_link_->due(now)) {
    claim_ = claim;
    host_link_->claim(now, claim);
  }
  Rate line = host_link_->part();
  if (!active || now - claimed_since_ < round_trip_) {
    const Rate prospect = host_link_->prospect(weight);
    line = !active || newcomers_ ? prospect : std::max(line, prospect);
  }
  link_.set_part(std::min(line.real_bps(), environment_.line_rate.real_bps()));
}

// Whether flows of other processes may wake up together with ours.
bool PaceReceiver::others_may_begin() const {
  if (host_link_ == nullptr) return false;
  return host_link_->prospect(claim_.weight) < std::min(host_link_->part(), environment_.line_rate);
}

// Whether the link is in use. Use by other processes counts only if it leaves less for us: not
// where the link's rate is unknown.
bool PaceReceiver::in_use() const {
  if (charged_ > 0 || host_link_ == nullptr) return charged_ > 0;
  return host_link_->used_by_others() > Rate() && host_link_->prospect(1) < environment_.line_rate;
}

// Updates `busy` in the grants of idle flows: set when the link has been in use for so long that it
// will probably stay so, cleared when it is idle.
void PaceReceiver::look_at_busyness(Instant now) {
  if (!in_use()) {
    busy_since_ = Instant::never();
  } else if (busy_since_ == Instant::never()) {
    busy_since_ = now;
  }
  const Duration lasting = round_trip_ + environment_.jitter * kBusyJitters;
  const bool busy = in_use() && (busy_ || now - busy_since_ >= lasting);
  if (busy != busy_) hold_left_ = used_;
  busy_ = busy;
}

// All flows of the episode are known now, and may be raised.
void PaceReceiver::end_episode() {
  newcomers_ = false;
  for (const uint32_t flow : active_) {
    if (flows_[flow].newcomer) due_.add(flow);
    flows_[flow].newcomer = false;
  }
}

bool PaceReceiver::is_due(Instant now, const Flow& f) const {
  const bool cut = target(f) < f.granted;
  if (stage_ == Stage::kRepeats) return now >= repeat_at(f);
  return cut == (stage_ == Stage::kCuts) && differs(f, constants_.regrant);
}

// False when the pass is over.
bool PaceReceiver::next_stage(Instant now) {
  cursor_ = 0;
  stage_ = static_cast<Stage>(static_cast<uint8_t>(stage_) + 1);
  if (stage_ == Stage::kRepeats && now < next_repeat_) stage_ = Stage::kDone;
  if (stage_ == Stage::kRepeats) next_repeat_ = Instant::never();
  return stage_ != Stage::kDone;
}

size_t PaceReceiver::serve_pass(Instant now, std::span<GrantUpdate> updates) {
  size_t count = 0;
  while (count < updates.size() && stage_ != Stage::kDone) {
    if (cursor_ >= active_.size()) {
      if (!next_stage(now)) break;
      continue;
    }
    const uint32_t flow = active_[cursor_];
    const Flow& f = flows_[flow];
    // A sender that has a demand but is silent for two validities is treated as idle.
    if (stage_ == Stage::kRepeats && now - f.last_seen > validity() * 2) {
      deactivate(flow);
      continue;
    }
    ++cursor_;
    if (is_due(now, f)) updates[count++] = send(now, flow);
    if (stage_ != Stage::kRepeats) continue;
    next_repeat_ = std::min(next_repeat_, repeat_at(f));
  }
  return count;
}

size_t PaceReceiver::serve_due(Instant now, std::span<GrantUpdate> updates) {
  size_t count = 0;
  while (count < updates.size() && !due_.empty()) {
    const uint32_t flow = due_.take();
    const Flow& f = flows_[flow];
    const double tolerance = f.active() ? constants_.regrant : constants_.hold_regrant;
    if (differs(f, tolerance)) updates[count++] = send(now, flow);
  }
  return count;
}

// Serves idle flows with receives posted, kHoldsAtATime at a time.
size_t PaceReceiver::serve_holds(Instant now, std::span<GrantUpdate> updates) {
  size_t count = 0;
  const size_t most = std::min<size_t>(updates.size(), kHoldsAtATime);
  while (count < most && hold_left_ > 0) {
    const uint32_t flow = hold_cursor_;
    hold_cursor_ = hold_cursor_ + 1 >= used_ ? 0 : hold_cursor_ + 1;
    --hold_left_;
    const Flow& f = flows_[flow];
    if (!f.present || f.active() || f.posted == 0) continue;
    if (differs(f, constants_.hold_regrant)) updates[count++] = send(now, flow);
  }
  next_hold_ =
      now + std::max(round_trip_ / kHoldsPerRoundTrip, environment_.jitter * kHoldsPerRoundTrip);
  return count;
}

}  // namespace pacecar
