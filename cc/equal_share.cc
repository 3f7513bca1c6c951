#include "cc/equal_share.h"

#include <algorithm>

#include "transport/base/check.h"

namespace pacecar {

EqualShare::EqualShare(Rate line_rate, uint32_t max_flows)
    : line_rate_(line_rate), flows_(max_flows) {
  PACECAR_CHECK(line_rate > Rate());
  active_.reserve(max_flows);
}

void EqualShare::add_flow(Instant, uint32_t flow) {
  PACECAR_CHECK(flow < flows_.size() && !flows_[flow].present);
  flows_[flow] = Flow{};
  flows_[flow].present = true;
}

void EqualShare::remove_flow(Instant, uint32_t flow) {
  at(flow).present = false;
  update_membership(flow);
}

void EqualShare::on_posted(Instant, uint32_t flow, Bytes bytes) {
  at(flow).outstanding += bytes;
  update_membership(flow);
}

void EqualShare::on_finished(Instant, uint32_t flow, Bytes bytes) {
  Bytes& outstanding = at(flow).outstanding;
  outstanding -= std::min(outstanding, bytes);
  update_membership(flow);
}

void EqualShare::on_demand(Instant, uint32_t flow, const Demand& demand) {
  at(flow).idle = !demand.is_credit && demand.backlog == 0;
  update_membership(flow);
}

size_t EqualShare::poll_grants(Instant now, std::span<GrantUpdate> updates) {
  if (now >= next_deadline() && (changed_ || stage_ == Stage::kDone)) start_pass(now);
  if (changed_) return 0;  // a raise to an outdated share could exceed the link
  size_t count = 0;
  while (count < updates.size() && stage_ != Stage::kDone) {
    if (cursor_ == active_.size()) {
      next_stage();
      continue;
    }
    const uint32_t id = active_[cursor_++];
    Flow& flow = flows_[id];
    if (is_due(flow, now)) {
      flow.granted = share_;
      flow.sent = now;
      ++flow.epoch;
      updates[count++] = {id, grant(id)};
    }
    if (stage_ == Stage::kRepeats) {
      next_repeat_ = std::min(next_repeat_, flow.sent + kRepeatInterval);
    }
  }
  return count;
}

Instant EqualShare::next_deadline() const {
  if (changed_) return next_recompute_;
  return stage_ == Stage::kDone ? next_repeat_ : pass_started_;
}

// A flow that was never granted anything starts at the share that it is about to get, and one whose
// cut is still to come is cut at once.
Grant EqualShare::grant(uint32_t flow) const {
  PACECAR_CHECK(flow < flows_.size() && flows_[flow].present);
  const Flow& f = flows_[flow];
  const Rate share = share_of(active_.size() + (f.active_slot == kInactive ? 1 : 0));
  return {.rate = f.granted == Rate() ? share : std::min(f.granted, share),
          .phase = Duration(),
          .validity = kValidity,
          .epoch = f.epoch};
}

EqualShare::Flow& EqualShare::at(uint32_t flow) {
  PACECAR_CHECK(flow < flows_.size() && flows_[flow].present);
  return flows_[flow];
}

Rate EqualShare::share_of(size_t flows) const {
  if (flows <= 1) return line_rate_;
  const uint64_t shared = line_rate_.bps() / 100 * kSharedPercent;
  return Rate::from_bps(std::max<uint64_t>(shared / flows, 1));
}

void EqualShare::update_membership(uint32_t flow) {
  Flow& f = flows_[flow];
  const bool wanted = f.present && f.outstanding > 0 && !f.idle;
  const bool member = f.active_slot != kInactive;
  if (wanted == member) return;
  changed_ = true;
  if (wanted) {
    f.active_slot = static_cast<uint32_t>(active_.size());
    active_.push_back(flow);
  } else {
    active_[f.active_slot] = active_.back();
    flows_[active_.back()].active_slot = f.active_slot;
    active_.pop_back();
    f.active_slot = kInactive;
  }
}

void EqualShare::start_pass(Instant now) {
  changed_ = false;
  stage_ = Stage::kCuts;
  cursor_ = 0;
  share_ = share_of(active_.size());
  pass_started_ = now;
  next_recompute_ = now + kMinRecomputeInterval;
}

void EqualShare::next_stage() {
  stage_ = static_cast<Stage>(static_cast<uint8_t>(stage_) + 1);
  cursor_ = 0;
  if (stage_ == Stage::kRepeats) next_repeat_ = Instant::never();
}

bool EqualShare::is_due(const Flow& flow, Instant now) const {
  switch (stage_) {
    case Stage::kCuts:
      return flow.granted > share_;
    case Stage::kRaises:
      return flow.granted < share_;
    case Stage::kRepeats:
      return now - flow.sent >= kRepeatInterval;
    case Stage::kDone:
      break;
  }
  return false;
}

}  // namespace pacecar
