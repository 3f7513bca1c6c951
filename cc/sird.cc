#include "cc/sird.h"

#include <cmath>

namespace pacecar {

SirdController::SirdController(const FlowEnvironment& environment, Bytes& accumulated)
    : GrantedController(environment),
      mtu_(environment.mtu),
      bdp_(sird_bdp(environment)),
      accumulated_(accumulated),
      host_(environment),
      core_(environment) {
  own_.window = no_window(environment);  // only credit limits the flow
}

void SirdController::on_grant(Instant now, const Grant& grant) {
  on_credit_ = grant.is_credit;
  if (!on_credit_) return GrantedController::on_grant(now, grant);
  granted_ += static_cast<uint64_t>(std::max<int64_t>(credit_ahead(grant.credit, granted_), 0));
  count_unused();
}

Bytes SirdController::credit_left() const {
  return granted_ * kCreditUnit - std::min(granted_ * kCreditUnit, covered_);
}

// Credit for part of a packet is kept until it covers the whole packet, or all unsent bytes.
FlowLimits SirdController::decide(Instant now) {
  if (!on_credit_) return capped(now, own_);
  FlowLimits decision = own_;
  const Bytes part = granted_ * kCreditUnit < wanted_ ? credit_left() % mtu_ : 0;
  decision.credit = sent_ + credit_left() - part;
  if (unscheduled_ < wanted_) decision.limited_by = LimitedBy::kGrant;
  return decision;
}

void SirdController::count_unused() {
  accumulated_ -= unused_;
  unused_ = std::min(credit_left(), wanted_ - std::min(covered_, wanted_));
  accumulated_ += unused_;
}

// The offsets of a flow count dropped bytes as if they had arrived, so that they never fall.
std::optional<Demand> SirdController::demand(Instant, const FlowStats& stats) {
  if (!on_credit_) return std::nullopt;
  const Bytes total = stats.acked + stats.backlog;
  dropped_ = std::max(dropped_, wanted_ - std::min(total, wanted_));
  wanted_ = total + dropped_;
  covered_ = stats.acked + stats.in_flight + dropped_;
  if (idle_ && static_cast<double>(stats.backlog) <= kSird.unscheduled * bdp_) {
    unscheduled_ = wanted_;
    granted_ = std::max(granted_, credit_units(wanted_));
  }
  idle_ = stats.backlog == 0;
  count_unused();
  // A sender with one flow to serve is not congested, however much credit that has.
  const bool csn =
      stats.sharing > 1 && static_cast<double>(accumulated_) > kSird.accumulated * bdp_;
  const Bytes newly_sent = stats.sent - std::min(sent_, stats.sent);
  host_.on_bytes(newly_sent, csn ? newly_sent : 0);
  sent_ = stats.sent;
  // A long wish is announced in parts, so that counts compare.
  constexpr uint64_t kMost = kCredit.limit_max / kCreditUnit;
  if (announced_ < granted_ + kMost / 2) {
    announced_ = std::max(announced_, std::min(credit_units(wanted_), granted_ + kMost));
  }
  Demand demand;
  demand.is_credit = true;
  demand.credit = announced_ * kCreditUnit;
  const double steps = std::ceil(std::min(host_.bytes(), core_.bytes()) / bdp_ * kSirdSteps);
  demand.epoch = static_cast<uint16_t>(steps);
  if (unscheduled_ == wanted_) demand.epoch |= kSirdUnscheduled;
  return demand;
}

}  // namespace pacecar
