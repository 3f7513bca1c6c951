// PaceReceiver's state of flows: which are active, and what each is charged.
#include "cc/pace/receiver.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "cc/pace/phase.h"
#include "cc/rate_law.h"
#include "transport/base/check.h"

namespace pacecar {
namespace {

// A flow is not raised if, when a raise takes effect, at most this part (1/32) of a bandwidth-delay
// product and at most a round trip's worth at its own rate is left: flows that end together would
// all be raised at the same time.
constexpr Bytes kRestShare = 32;
// A shortest transit is forgotten after this many jitters, because clocks drift apart: at 5 parts
// in a million by a tenth of the jitter.
constexpr int64_t kMemoryJitters = 20'000;
constexpr Duration kLeastMemory = Duration::from_ms(10);
constexpr Duration kMostMemory = Duration::from_s(2);

bool newer(uint16_t epoch, uint16_t than) {
  return static_cast<int16_t>(static_cast<uint16_t>(epoch - than)) > 0;
}

}  // namespace

PaceReceiver::PaceReceiver(const FlowEnvironment& environment, uint32_t max_flows,
                           const PaceConstants& constants)
    : environment_(environment),
      constants_(constants),
      host_link_(environment.host_link),
      round_trip_(base_round_trip(environment)),
      phases_(keeps_phases(environment)),
      base_memory_(std::clamp(environment.jitter * kMemoryJitters, kLeastMemory, kMostMemory)),
      link_(environment, round_trip_, constants_),
      fan_in_(round_trip_, environment.line_rate.time_for(kWordBytes)),
      flows_(max_flows),
      homes_(max_flows),
      slots_(max_flows),
      due_(max_flows) {
  PACECAR_CHECK(environment.line_rate > Rate() && environment.mtu > 0);
  active_.reserve(max_flows);
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
  f.last_seen = f.busy_period_began = now;
  f.home = f.slot = homes_.take_lowest();
  ++present_;
  if (flow >= used_) {
    if (hold_left_ > 0) hold_left_ += flow + 1 - used_;
    used_ = flow + 1;
  }
  changed_ |= host_link_ != nullptr;  // our claim to the host's link may have changed
}

void PaceReceiver::remove_flow(Instant, uint32_t flow) {
  Flow& f = at(flow);
  if (f.active()) deactivate(flow);
  if (f.posted > 0) --posted_;
  homes_.release(f.home);
  due_.remove(flow);
  f.present = false;
  --present_;
  changed_ |= host_link_ != nullptr;
}

void PaceReceiver::on_posted(Instant now, uint32_t flow, Bytes bytes) {
  Flow& f = at(flow);
  if (f.posted == 0 && bytes > 0) {
    ++posted_;
    due_.add(flow);
    // The first CTS slot carries its hold.
    if (host_link_ != nullptr && host_link_->due(now)) claim_part(now);
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
  charge(f, Rate());
  f.weight = weight;
  update(now, flow);
}

void PaceReceiver::on_hint(Instant, const TrafficHint& hint) {
  hinted_ = hint.peers;
  changed_ = true;  // the hold of idle flows
}

void PaceReceiver::on_demand(Instant now, uint32_t flow, const Demand& demand) {
  Flow& f = at(flow);
  if (demand.is_credit || (f.has_demand && !newer(demand.epoch, f.demand_epoch))) return;
  f.has_demand = true;
  f.demand_epoch = demand.epoch;
  f.last_seen = now;
  f.usable = std::min(demand.usable, environment_.line_rate);
  // The total travels modulo 2^32: it is the value nearest to the bytes received.
  const auto ahead = static_cast<int32_t>(static_cast<uint32_t>(demand.wanted) -
                                          static_cast<uint32_t>(f.received));
  const Bytes wanted = f.received + static_cast<Bytes>(std::max(ahead, 0));
  if (wanted > f.wanted) f.phase = Phase::kLasting;
  f.wanted = wanted;
  if (f.usable == Rate()) f.received = f.wanted;  // all has arrived and is acknowledged
  update(now, flow);
}

void PaceReceiver::on_arrival(Instant now, uint32_t flow, Bytes bytes, const Transit& transit) {
  Flow& f = at(flow);
  const size_t size = EmptyPath::size_class(transit.payload, environment_.mtu);
  const Duration late = f.path.excess(now, transit.ns, size, base_memory_);
  const Bytes wire = on_wire(bytes, environment_.mtu, environment_.overhead);
  // Data too short for a demand is a sign of life, too.
  if (!f.active() && now - f.last_seen > round_trip_) {
    wake(now, f);
    f.busy_period_began = now;
    f.busy_period_bytes = 0;
  }
  f.last_seen = now;
  f.busy_period_bytes += bytes;
  // An idle flow at full speed has sent a demand that was lost.
  const bool full_speed = f.busy_period_bytes * 2 > f.granted.bytes_in(now - f.busy_period_began);
  changed_ |= link_.on_arrival(now, wire, f.active() || full_speed, late, flow);
  f.received += bytes;
  if (f.active() || f.remaining() > 0) update(now, flow);
}

void PaceReceiver::on_foreign_arrival(Instant now, Bytes bytes) {
  const Bytes wire = on_wire(bytes, environment_.mtu, environment_.overhead);
  changed_ |= link_.on_arrival(now, wire, /*covered=*/false, Duration::max(), kInactive);
}

// Updates a flow's state and charge.
void PaceReceiver::update(Instant now, uint32_t flow) {
  Flow& f = at(flow);
  const bool wanted = f.usable > Rate() && f.remaining() > 0;
  if (wanted != f.active()) wanted ? activate(now, flow) : deactivate(flow);
  if (!f.active()) return;
  advance(now, f);
  charge(f, limit(f));
  due_.add(flow);
}

// Bytes that arrive within a round trip. A raise takes effect a round trip after it was sent.
Bytes PaceReceiver::arrives_in_time(Instant now, const Flow& f) const {
  const Duration since = std::min(now - f.sent, round_trip_);
  const Rate before = std::min(f.granted, f.granted_before);
  return f.granted.bytes_in(since) + before.bytes_in(round_trip_ - since);
}

void PaceReceiver::advance(Instant now, Flow& f) const {
  if (f.granted == Rate()) return;
  const Bytes in_time = arrives_in_time(now, f);
  const Bytes rest = std::min(environment_.line_rate.bytes_in(round_trip_) / kRestShare, in_time);
  if (f.phase == Phase::kLasting && f.remaining() <= in_time + rest) f.phase = Phase::kEnding;
  if (f.phase == Phase::kEnding && f.remaining() <= in_time) f.phase = Phase::kDone;
}

// The rate that an active flow is charged.
Rate PaceReceiver::limit(const Flow& f) const {
  if (f.phase == Phase::kDone) return Rate();
  return f.phase == Phase::kEnding ? std::min(f.granted, f.usable) : f.usable;
}

void PaceReceiver::charge(Flow& f, Rate limit) {
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

void PaceReceiver::wake(Instant now, Flow& f) {
  if (fan_in_.counted(f.woke, now)) return;
  f.woke = now;
  fan_in_.on_wake(now, charged_ + 1);
}

void PaceReceiver::activate(Instant now, uint32_t flow) {
  Flow& f = flows_[flow];
  f.position = static_cast<uint32_t>(active_.size());
  active_.push_back(flow);
  wake(now, f);
  f.newcomer = true;
  f.phase = Phase::kLasting;
  newcomers_ = true;
  // Its hold may be its grant, which is then repeated by the time at which it was sent.
  if (f.granted > Rate()) next_repeat_ = std::min(next_repeat_, repeat_at(f));
  const uint32_t together = std::max(expected(posted_), static_cast<uint32_t>(active_.size()));
  if (f.home < std::bit_ceil(together) && slots_.is_free(f.home)) {
    slots_.take(f.slot);  // its home, as it is idle
  } else {
    f.slot = slots_.take_lowest();
  }
}

void PaceReceiver::deactivate(uint32_t flow) {
  Flow& f = flows_[flow];
  charge(f, Rate());
  flows_[active_.back()].position = f.position;
  active_[f.position] = active_.back();
  active_.pop_back();
  f.position = kInactive;
  slots_.release(f.slot);
  f.slot = f.home;
  changed_ = true;  // eta may change, too
  due_.add(flow);
}

}  // namespace pacecar
