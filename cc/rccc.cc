#include "cc/rccc.h"

#include <algorithm>

#include "cc/credit.h"
#include "transport/base/check.h"

namespace pacecar {
namespace {

// A flow that has more to send than it may ask for raises its wish in steps: each is a packet.
constexpr uint64_t kWishSteps = 8;

}  // namespace

RcccController::RcccController(const FlowEnvironment& environment)
    : mtu_(environment.mtu), limit_(credit_limit(environment)), rate_limit_(environment.line_rate) {
  PACECAR_CHECK(environment.line_rate > Rate() && environment.mtu > 0);
  own_.rate = environment.line_rate;
  // Credit is all that holds the flow back.
  own_.window = no_window(environment);
  start_blind(0);
}

void RcccController::start_blind(Bytes sent) {
  blind_ = true;
  blind_from_ = sent_ = sent;
  may_send_ = sent + limit_;
  wish_from_ = granted_;
}

void RcccController::on_word(Bytes sent) {
  sent_ = sent;
  if (!blind_ || sent == blind_from_) return;
  blind_ = false;
  may_send_ = sent;
  wish_from_ = granted_;
}

// What is granted while the flow still sends blindly is part of the credit that it loses.
void RcccController::on_grant(Instant now, const Grant& grant) {
  on_credit_ = grant.is_credit;
  if (!on_credit_) return rate_limit_.on_grant(now, grant);
  const int64_t ahead = credit_ahead(grant.credit, granted_);
  if (ahead <= 0) return;
  granted_ += static_cast<uint64_t>(ahead);
  if (blind_) return;
  wish_from_ = granted_;
  const Bytes most = std::max(may_send_, sent_ + limit_);
  may_send_ = std::min(may_send_ + static_cast<Bytes>(ahead) * kCreditUnit, most);
}

Decision RcccController::decide(Instant now) {
  if (!on_credit_) return rate_limit_.apply(now, own_);
  Decision decision = own_;
  decision.credit = may_send_;
  decision.limited_by = blind_ ? LimitedBy::kLine : LimitedBy::kGrant;
  return decision;
}

// While it sends blindly a flow asks for a packet at least: the receiver then knows of it, and has
// credit to spare for it when something is lost.
std::optional<Demand> RcccController::demand(Instant, const FlowStanding& standing) {
  if (!on_credit_) return std::nullopt;
  sent_ = standing.sent;
  if (standing.backlog == 0) {
    start_blind(standing.sent);
  } else {
    const Bytes unsent = standing.backlog - std::min(standing.in_flight, standing.backlog);
    const Bytes target = sent_ + unsent;
    const Bytes missing = std::max(target - std::min(may_send_, target), blind_ ? mtu_ : 0);
    const uint64_t wish = wish_from_ + credit_units(std::min(missing, limit_));
    const uint64_t step = missing > limit_ ? limit_ / kCreditUnit / kWishSteps : 1;
    if (missing > 0 && wish >= wished_ + step) wished_ = wish;
  }
  Demand demand;
  demand.is_credit = true;
  demand.credit = wished_ * kCreditUnit;
  return demand;
}

}  // namespace pacecar
