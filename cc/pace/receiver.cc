#include "cc/pace/receiver.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cc/pace/phase.h"
#include "cc/rate_law.h"
#include "transport/base/check.h"

namespace pacecar {
namespace {

constexpr Duration kLookInterval = Duration::from_us(1);
constexpr int64_t kBusyAfter = 1;  // round trips
// A flow of which no more than this part of a bandwidth-delay product would be left when a raise
// takes effect is not raised: flows that end together would all be, at the same time.
constexpr Bytes kRestShare = 32;
// Messages that take less than so many round trips of the whole link take turns.
constexpr int64_t kShort = 8;
// What a flow may send while it waits for its turn, of the line rate.
constexpr double kWaitingShare = 256;
// On top of what a flow can use, so that it can show that it could use more.
constexpr double kSlack = 1.0 / 16;
// A shortest transit is forgotten after one to two of these: clocks drift apart.
constexpr Duration kTransitMemory = Duration::from_ms(10);
// Idle flows whose hold is told at a time, and how often: there may be many, and they can wait.
constexpr uint32_t kHoldsAtATime = 16;
constexpr int64_t kHoldsPerRoundTrip = 4;
constexpr int64_t kRepeatsPerValidity = 4;  // three in a row may be lost
// Repeats take a hundredth of the link, whatever the number of flows.
constexpr Bytes kWordBytes = 128;  // on the wire
constexpr Bytes kWordShare = 100;
constexpr int64_t kPausesPerValidity = 4;

Rate rate_of(double bps) { return Rate::from_bps(static_cast<uint64_t>(std::max(bps, 1.0))); }
double bps_of(Rate rate) { return static_cast<double>(rate.bps()); }

bool newer(uint16_t epoch, uint16_t than) {
  return static_cast<int16_t>(static_cast<uint16_t>(epoch - than)) > 0;
}

}  // namespace

PaceReceiver::PaceReceiver(const FlowEnvironment& environment, uint32_t max_flows)
    : environment_(environment),
      round_trip_(base_round_trip(environment)),
      capacity_(environment.line_rate, environment.mtu + environment.overhead, round_trip_,
                environment.jitter, constants_),
      fan_in_(round_trip_),
      flows_(max_flows),
      homes_(max_flows),
      slots_(max_flows),
      due_(max_flows) {
  PACECAR_CHECK(environment.line_rate > Rate() && environment.mtu > 0);
  active_.reserve(max_flows);
}

PaceReceiver::Flow& PaceReceiver::at(uint32_t flow) {
  PACECAR_CHECK(flow < flows_.size() && flows_[flow].present);
  return flows_[flow];
}

const PaceReceiver::Flow& PaceReceiver::at(uint32_t flow) const {
  PACECAR_CHECK(flow < flows_.size() && flows_[flow].present);
  return flows_[flow];
}

void PaceReceiver::add_flow(Instant now, uint32_t flow) {
  PACECAR_CHECK(flow < flows_.size() && !flows_[flow].present);
  Flow& f = flows_[flow];
  f = Flow{};
  f.present = true;
  f.heard = now;
  f.home = f.slot = homes_.take_lowest();
}

void PaceReceiver::remove_flow(Instant, uint32_t flow) {
  Flow& f = at(flow);
  if (f.active()) deactivate(flow);
  if (f.posted > 0) --posted_;
  homes_.release(f.home);
  due_.remove(flow);
  f.present = false;
}

void PaceReceiver::on_posted(Instant, uint32_t flow, Bytes bytes) {
  Flow& f = at(flow);
  if (f.posted == 0 && bytes > 0) {
    ++posted_;
    due_.add(flow);
  }
  f.posted += bytes;
}

void PaceReceiver::on_finished(Instant, uint32_t flow, Bytes bytes) {
  Flow& f = at(flow);
  const Bytes before = f.posted;
  f.posted -= std::min(f.posted, bytes);
  if (before > 0 && f.posted == 0) --posted_;
}

void PaceReceiver::set_weight(Instant now, uint32_t flow, uint32_t weight) {
  Flow& f = at(flow);
  if (f.weight == weight) return;
  const Rate limit = f.charged;
  charge(f, Rate());
  f.weight = weight;
  charge(f, limit);
  update(now, flow);
}

void PaceReceiver::on_hint(Instant, const TrafficHint& hint) {
  hinted_ = hint.peers;
  changed_ = true;  // what idle flows hold
}

// --- what is heard of flows ---

void PaceReceiver::on_demand(Instant now, uint32_t flow, const Demand& demand) {
  Flow& f = at(flow);
  if (demand.is_credit || (f.has_demand && !newer(demand.epoch, f.demand_epoch))) return;
  f.has_demand = true;
  f.demand_epoch = demand.epoch;
  f.heard = now;
  f.usable = std::min(demand.usable, environment_.line_rate);
  f.said_turn = demand.turn;
  // The total is known modulo 2^32: it is near what has been received.
  const auto ahead = static_cast<int32_t>(static_cast<uint32_t>(demand.wanted) -
                                          static_cast<uint32_t>(f.received));
  const Bytes wanted = f.received + static_cast<Bytes>(std::max(ahead, 0));
  if (wanted > f.wanted) f.phase = Phase::kLasting;
  f.wanted = wanted;
  if (f.usable == Rate()) f.received = f.wanted;  // the sender knows that all is there
  update(now, flow);
}

void PaceReceiver::on_arrival(Instant now, uint32_t flow, Bytes bytes, uint32_t transit_ns) {
  Flow& f = at(flow);
  const Duration late = excess(f, transit_ns, now);
  const Bytes packets = (bytes + environment_.mtu - 1) / environment_.mtu;
  const Bytes wire = bytes + packets * environment_.overhead;
  changed_ |= capacity_.on_arrival(now, wire, f.active(), late);
  // What is too little to be announced is a sign of life all the same.
  if (!f.active() && now - f.heard > round_trip_) fan_in_.on_wake(now, charged_ + 1);
  f.heard = now;
  f.received += bytes;
  if (f.active() || f.remaining() > 0) update(now, flow);
}

void PaceReceiver::on_foreign_arrival(Instant now, Bytes bytes) {
  const Bytes packets = (bytes + environment_.mtu - 1) / environment_.mtu;
  const Bytes wire = bytes + packets * environment_.overhead;
  changed_ |= capacity_.on_arrival(now, wire, /*covered=*/false, Duration::max());
}

// How much longer than the least of late this transit was.
Duration PaceReceiver::excess(Flow& f, uint32_t transit_ns, Instant now) const {
  const auto over = [&](uint32_t least) { return static_cast<int32_t>(transit_ns - least); };
  if (f.base_since == Instant()) {
    f.base_since = now;
    f.base_transit = f.next_transit = transit_ns;
  } else if (now - f.base_since >= kTransitMemory) {
    f.base_since = now;
    f.base_transit = f.next_transit;
    f.next_transit = transit_ns;
  }
  if (over(f.next_transit) < 0) f.next_transit = transit_ns;
  if (over(f.base_transit) < 0) f.base_transit = transit_ns;
  return Duration::from_ns(over(f.base_transit));
}

// Brings a flow's membership and charge up to date.
void PaceReceiver::update(Instant now, uint32_t flow) {
  Flow& f = at(flow);
  const bool wanted = f.usable > Rate() && f.remaining() > 0;
  if (wanted != f.active()) wanted ? activate(now, flow) : deactivate(flow);
  if (!f.active()) return;
  advance(f);
  const bool takes_turn = f.said_turn > 0 && f.phase != Phase::kDone &&
                          f.remaining() <= environment_.line_rate.bytes_in(round_trip_ * kShort);
  take_turn(f, takes_turn ? f.said_turn : 0);
  charge(f, limit(f));
  due_.add(flow);
}

void PaceReceiver::advance(Flow& f) const {
  if (f.granted == Rate()) return;
  const Bytes in_time = f.granted.bytes_in(round_trip_);
  const Bytes rest = environment_.line_rate.bytes_in(round_trip_) / kRestShare;
  if (f.phase == Phase::kLasting && f.remaining() <= in_time + rest) f.phase = Phase::kEnding;
  if (f.phase == Phase::kEnding && f.remaining() <= in_time) f.phase = Phase::kDone;
}

// What an active flow is charged. One that waits for its turn gets what is left.
Rate PaceReceiver::limit(const Flow& f) const {
  if (f.phase == Phase::kDone || yields(f)) return Rate();
  return f.phase == Phase::kEnding ? std::min(f.granted, f.usable) : f.usable;
}

// Messages of a few round trips are better served one after another than all at the same time, and
// a sender that is late goes first, so that ranks that take turns stay together. Senders of the
// same turn share.
void PaceReceiver::take_turn(Flow& f, uint8_t turn) {
  if (turn == f.turn) return;
  bool moved = f.turn > 0 && turns_.remove(f.turn);
  f.turn = turn;
  moved |= f.turn > 0 && turns_.add(f.turn);
  if (!moved) return;
  for (const uint32_t other : active_) {
    charge(flows_[other], limit(flows_[other]));
    due_.add(other);
  }
}

bool PaceReceiver::yields(const Flow& f) const { return f.turn > 0 && !turns_.is_late(f.turn); }

void PaceReceiver::charge(Flow& f, Rate limit) {
  const bool yielding = f.active() && yields(f);
  yielding_ += (yielding ? 1 : 0) - (f.yielding ? 1 : 0);
  changed_ |= yielding != f.yielding;
  f.yielding = yielding;
  if (f.charged == limit) return;
  if (f.charged > Rate()) {
    fill_.remove(f.charged, f.weight);
    --charged_;
  }
  f.charged = limit;
  if (limit > Rate()) {
    fill_.add(limit, f.weight);
    ++charged_;
  }
  changed_ = true;
}

void PaceReceiver::activate(Instant now, uint32_t flow) {
  Flow& f = flows_[flow];
  f.position = static_cast<uint32_t>(active_.size());
  active_.push_back(flow);
  fan_in_.on_wake(now, charged_ + 1);
  f.newcomer = true;
  f.phase = Phase::kLasting;
  ++newcomers_;
  // What it holds may be what it is granted, and then counts from when it was said.
  if (f.granted > Rate()) {
    next_repeat_ = std::min(next_repeat_, f.sent + validity() / kRepeatsPerValidity);
  }
  const uint32_t together = std::max(expected(posted_), static_cast<uint32_t>(active_.size()));
  if (f.home < std::bit_ceil(together) && slots_.is_free(f.home)) {
    f.slot = f.home;
    slots_.take(f.slot);
  } else {
    f.slot = slots_.take_lowest();
  }
}

void PaceReceiver::deactivate(uint32_t flow) {
  Flow& f = flows_[flow];
  take_turn(f, 0);
  charge(f, Rate());
  flows_[active_.back()].position = f.position;
  active_[f.position] = active_.back();
  active_.pop_back();
  f.position = kInactive;
  newcomers_ -= f.newcomer ? 1 : 0;
  f.newcomer = false;
  slots_.release(f.slot);
  f.slot = f.home;
  changed_ = true;  // also the share of the link that may be granted
  due_.add(flow);
}

// --- what they are granted ---

// `posted`: flows that could wake up; the application may know that fewer do at the same time.
uint32_t PaceReceiver::expected(uint32_t posted) const {
  return fan_in_.expected(hinted_ == 0 ? posted : std::min(hinted_, posted));
}

Rate PaceReceiver::hold(uint32_t posted) const {
  const uint32_t flows = expected(posted);
  return rate_of(capacity_.available(flows) / flows);
}

Rate PaceReceiver::target(const Flow& f) const {
  if (!f.active()) return hold(posted_);
  if (yields(f)) return std::min(rate_of(waiting_), f.usable);
  const double usable = bps_of(f.usable);
  double rate = level_ == WaterFill::kNoLevel ? usable + spare_ * f.weight
                                              : std::min(level_ * f.weight, usable * (1 + kSlack));
  if (f.newcomer) rate = std::min(rate, bps_of(hold(posted_)));
  if (f.phase != Phase::kLasting) rate = std::min(rate, bps_of(f.granted));
  return rate_of(std::min(rate, capacity_.line()));
}

Duration PaceReceiver::validity() const {
  const auto round_trips = static_cast<int64_t>(constants_.validity_round_trips);
  return std::max({round_trip_ * round_trips, constants_.validity,
                   environment_.pause * kPausesPerValidity,
                   environment_.line_rate.time_for(kWordBytes * kWordShare * active_.size()) *
                       kRepeatsPerValidity});
}

bool PaceReceiver::differs(const Flow& f, double tolerance) const {
  if (f.granted == Rate() || f.slot != f.sent_slot) return true;
  if (!f.active() && f.sent_busy != busy_) return true;
  const double granted = bps_of(f.granted);
  return std::abs(bps_of(target(f)) - granted) > tolerance * granted;
}

GrantUpdate PaceReceiver::send(Instant now, uint32_t flow) {
  Flow& f = flows_[flow];
  f.granted = target(f);
  f.sent = now;
  f.sent_slot = f.slot;
  ++f.epoch;
  if (f.active()) next_repeat_ = std::min(next_repeat_, now + validity() / kRepeatsPerValidity);
  GrantUpdate update{flow, grant(flow)};
  f.sent_busy = update.grant.busy = busy_ && !f.active();
  if (f.sent_busy) return update;
  const Bytes burst =
      pace_burst(f.granted, round_trip_, environment_.mtu, environment_.burst_bytes);
  const double gap = pace_gap_ns(f.granted, burst, environment_.mtu, environment_.overhead);
  const double phase = modulo(pace_fraction(f.slot) * gap - static_cast<double>(now.ns()), gap);
  update.grant.aligned = true;
  update.grant.phase = Duration::from_ns(static_cast<int64_t>(phase));
  return update;
}

// A flow that was never granted anything is about to wait for its first message, like those that
// do.
Grant PaceReceiver::grant(uint32_t flow) const {
  const Flow& f = at(flow);
  return {.rate = f.granted == Rate() ? hold(posted_ + (f.posted == 0 ? 1 : 0)) : f.granted,
          .phase = {},
          .validity = validity(),
          .epoch = f.epoch};
}

Instant PaceReceiver::next_deadline() const {
  if (stage_ != Stage::kDone || !due_.empty() || changed_) return next_look_;
  Instant next = active_.empty() ? Instant::never() : next_repeat_;
  if (hold_left_ > 0) next = std::min(next, next_hold_);
  if (newcomers_ > 0) next = std::min(next, fan_in_.gathered());
  return std::max(next, next_look_);
}

size_t PaceReceiver::poll_grants(Instant now, std::span<GrantUpdate> updates) {
  if (!serving_) {
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

// Looks at the link anew; goes over all active flows when the level has moved, or repeats are due.
void PaceReceiver::start_pass(Instant now) {
  next_look_ = now + kLookInterval;
  changed_ = false;
  if (newcomers_ > 0 && !fan_in_.gathering(now)) end_episode();
  const double available = capacity_.available(active_.size());
  level_ = fill_.level(available);
  const double left = level_ == WaterFill::kNoLevel ? available - fill_.limits() : 0;
  waiting_ = std::max(left, capacity_.line() / kWaitingShare) / std::max(yielding_, 1U);
  spare_ = charged_ > 0 && yielding_ == 0 ? left / static_cast<double>(fill_.weights()) : 0;
  const double shown = level_ == WaterFill::kNoLevel ? -left : level_;
  const bool moved = std::abs(shown - passed_level_) > constants_.regrant * std::abs(passed_level_);
  if (moved || now >= next_repeat_) {
    passed_level_ = shown;
    stage_ = Stage::kCuts;
    cursor_ = 0;
  }
  look_at_busyness(now);
  const uint32_t flows = expected(posted_);
  if (flows != holding_for_) {
    holding_for_ = flows;
    hold_left_ = static_cast<uint32_t>(flows_.size());
  }
}

// Idle flows are told when a link has been in use for so long that it will probably stay so, or
// no longer is.
void PaceReceiver::look_at_busyness(Instant now) {
  if (charged_ == 0) {
    busy_since_ = Instant::never();
  } else if (busy_since_ == Instant::never()) {
    busy_since_ = now;
  }
  const bool busy = charged_ > 0 && (busy_ || now - busy_since_ >= round_trip_ * kBusyAfter);
  if (busy != busy_) hold_left_ = static_cast<uint32_t>(flows_.size());
  busy_ = busy;
}

// Those that woke up together are all known now, and may be raised.
void PaceReceiver::end_episode() {
  newcomers_ = 0;
  for (const uint32_t flow : active_) {
    if (flows_[flow].newcomer) due_.add(flow);
    flows_[flow].newcomer = false;
  }
}

bool PaceReceiver::is_due(Instant now, const Flow& f) const {
  const bool cut = target(f) < f.granted;
  if (stage_ == Stage::kRepeats) return now - f.sent >= validity() / kRepeatsPerValidity;
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
    // A sender that is silent although it wants to send is not there.
    if (stage_ == Stage::kRepeats && now - f.heard > validity() * 2) {
      deactivate(flow);
      continue;
    }
    ++cursor_;
    if (is_due(now, f)) updates[count++] = send(now, flow);
    if (stage_ != Stage::kRepeats) continue;
    next_repeat_ = std::min(next_repeat_, f.sent + validity() / kRepeatsPerValidity);
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

// Idle flows with receives posted, some at a time.
size_t PaceReceiver::serve_holds(Instant now, std::span<GrantUpdate> updates) {
  size_t count = 0;
  const size_t most = std::min<size_t>(updates.size(), kHoldsAtATime);
  while (count < most && hold_left_ > 0) {
    const uint32_t flow = hold_cursor_;
    hold_cursor_ = hold_cursor_ + 1 == flows_.size() ? 0 : hold_cursor_ + 1;
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
