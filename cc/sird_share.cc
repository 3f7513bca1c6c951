#include "cc/sird_share.h"

#include <algorithm>

#include "transport/base/check.h"

namespace pacecar {

SirdShare::SirdShare(const FlowEnvironment& environment, uint32_t max_flows)
    : mtu_(environment.mtu),
      bdp_(static_cast<Bytes>(sird_bdp(environment))),
      most_(static_cast<Bytes>(kSird.outstanding * sird_bdp(environment))),
      pull_(kSird.pull_packets * environment.mtu),
      pacer_(environment),
      flows_(max_flows),
      asking_(max_flows) {}

void SirdShare::add_flow(Instant, uint32_t flow) {
  PACECAR_CHECK(flow < flows_.size());
  flows_[flow] = Flow{};
}

void SirdShare::remove_flow(Instant, uint32_t flow) {
  outstanding_ -= flows_[flow].outstanding();
  flows_[flow] = Flow{};
  asking_.remove(flow);
}

// Counts never fall.
void SirdShare::advance(Instant now, Flow& flow, Bytes granted, Bytes arrived) {
  moved_ = now;
  outstanding_ -= flow.outstanding();
  flow.granted = std::max(flow.granted, granted);
  flow.arrived = std::max(flow.arrived, arrived);
  outstanding_ += flow.outstanding();
}

// The flow may be granted more. Time in which nobody could be is not caught up on.
void SirdShare::offer(Instant now, uint32_t flow) {
  if (asking_.empty()) next_pull_ = std::max(next_pull_, now);
  if (flows_[flow].granted < flows_[flow].wished) asking_.add(flow);
}

void SirdShare::on_finished(Instant now, uint32_t flow, Bytes bytes) {
  Flow& f = flows_[flow];
  f.posted -= std::min(f.posted, bytes);
  if (f.posted > 0) return;
  // The sender has nothing to send: the outstanding bytes will never arrive.
  advance(now, f, 0, f.wished);
}

// A wish that is not ahead of the last one is a late word; even then its bucket counts.
void SirdShare::on_demand(Instant now, uint32_t flow, const Demand& demand) {
  PACECAR_CHECK(flow < flows_.size());
  if (!demand.is_credit) return;  // the sender does not run on credit
  Flow& f = flows_[flow];
  const Bytes steps = std::min<Bytes>(demand.epoch & ~kSirdUnscheduled, kSirdSteps);
  f.bucket = std::max(steps * bdp_ / kSirdSteps, mtu_);
  const int64_t ahead = credit_ahead(demand.credit, f.wished / kCreditUnit);
  f.wished += static_cast<Bytes>(std::max<int64_t>(ahead, 0)) * kCreditUnit;
  const bool unscheduled = (demand.epoch & kSirdUnscheduled) != 0;
  if (unscheduled && f.wished - f.granted < bdp_ + kCreditUnit) advance(now, f, f.wished, 0);
  offer(now, flow);
}

void SirdShare::on_arrival(Instant now, uint32_t flow, Bytes bytes, const Transit&) {
  if (full()) next_pull_ = std::max(next_pull_, now);
  advance(now, flows_[flow], 0, flows_[flow].arrived + bytes);
  offer(now, flow);
}

size_t SirdShare::poll_grants(Instant now, std::span<GrantUpdate> updates) {
  next_pull_ = std::max(next_pull_, now - kCredit.max_lateness);
  if (outstanding_ > 0 && now - moved_ >= kCredit.ask_again) take_back(now);
  size_t count = 0;
  while (count < updates.size() && now >= next_pull_) {
    const std::optional<uint32_t> flow = pull(now);
    if (!flow) break;
    updates[count++] = {*flow, grant(*flow)};
  }
  return count;
}

std::optional<uint32_t> SirdShare::pull(Instant now) {
  while (!asking_.empty() && !full()) {
    const uint32_t flow = asking_.take();
    Flow& f = flows_[flow];
    if (f.outstanding() >= f.bucket || f.granted >= f.wished) continue;
    const Bytes bytes = std::min(pull_, f.wished - f.granted);
    advance(now, f, f.granted + bytes, 0);
    next_pull_ = next_pull_ + pacer_.time_of(bytes);
    if (f.granted < f.wished) asking_.add(flow);
    return flow;
  }
  return std::nullopt;
}

void SirdShare::take_back(Instant now) {
  next_pull_ = std::max(next_pull_, now);
  for (uint32_t flow = 0; flow < flows_.size(); ++flow) {
    if (flows_[flow].outstanding() == 0) continue;
    advance(now, flows_[flow], 0, flows_[flow].granted);
    offer(now, flow);
  }
}

Instant SirdShare::next_deadline() const {
  if (asking_.empty() || full()) {
    return outstanding_ == 0 ? Instant::never() : moved_ + kCredit.ask_again;
  }
  return next_pull_;
}

// Rounded up, so that the last packet granted can be sent.
Grant SirdShare::grant(uint32_t flow) const {
  PACECAR_CHECK(flow < flows_.size());
  Grant grant;
  grant.is_credit = true;
  grant.credit = credit_units(flows_[flow].granted) * kCreditUnit;
  return grant;
}

}  // namespace pacecar
