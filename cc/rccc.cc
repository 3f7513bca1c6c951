#include "cc/rccc.h"

#include <algorithm>

#include "cc/credit.h"

namespace pacecar {
namespace {

// Each demand is a packet: while much of a wish is not granted yet, it rises in large steps.
constexpr uint64_t kWishSteps = 8;

}  // namespace

RcccController::RcccController(const FlowEnvironment& environment, const Constants&)
    : GrantedController(environment), mtu_(environment.mtu), limit_(credit_limit(environment)) {
  own_.window = no_window(environment);  // Only credit limits the flow.
  start_blind(0);
}

void RcccController::start_blind(Bytes sent) {
  blind_ = true;
  blind_from_ = sent_ = sent;
  may_send_ = sent + limit_;
}

void RcccController::on_signal(Bytes sent) {
  sent_ = sent;
  if (!blind_ || sent == blind_from_) return;
  blind_ = false;
  may_send_ = sent;
}

// A loss counts like a packet that is sent: the flow's wish may have grown.
void RcccController::on_loss(Instant, const Loss& loss) {
  on_signal(loss.sent);
  if (loss.kind == LossKind::kMissing && may_send_ <= sent_) may_ask_ = true;
}

// The first grant ends the blind start, too; its own credit is not withdrawn with the blind credit.
void RcccController::on_grant(Instant now, const Grant& grant) {
  on_credit_ = grant.is_credit;
  if (!on_credit_) return GrantedController::on_grant(now, grant);
  const int64_t ahead = credit_ahead(grant.credit, granted_);
  if (ahead <= 0) return;
  granted_ += static_cast<uint64_t>(ahead);
  on_signal(sent_);
  if (blind_) return;
  const Bytes most = std::max(may_send_, sent_ + limit_);
  may_send_ = std::min(may_send_ + static_cast<Bytes>(ahead) * kCreditUnit, most);
}

FlowLimits RcccController::decide(Instant now) {
  if (!on_credit_) return capped(now, own_);
  FlowLimits decision = own_;
  decision.credit = may_send_;
  decision.limited_by = blind_ ? own_.limited_by : LimitedBy::kGrant;
  return decision;
}

// The wish is computed with every packet that is sent, and the largest counts. The wish of a flow
// without credit therefore does not change, even if its share of the link was less than one packet,
// until the receiver grants unasked or kCredit.ask_again has passed.
std::optional<Demand> RcccController::demand(Instant now, const FlowStats& stats) {
  if (!on_credit_) return std::nullopt;
  const bool may_ask = may_ask_ || stats.sent != asked_at_ || now - asked_ >= kCredit.ask_again;
  sent_ = stats.sent;
  if (stats.backlog == 0) {
    start_blind(sent_);
  } else if (may_ask) {
    ask(stats);
  }
  if (stats.backlog == 0 || may_ask) {
    may_ask_ = false;
    asked_at_ = sent_;
    asked_ = now;
  }
  Demand demand;
  demand.is_credit = true;
  demand.credit = announced_ * kCreditUnit;
  return demand;
}

// Asks for credit for unsent bytes that have none. While a flow sends blindly it asks for at least
// a packet, so that the receiver knows of it and can grant it unasked credit after a loss. Each of
// the flows that share a link asks for its part.
void RcccController::ask(const FlowStats& stats) {
  const Bytes unsent = stats.backlog - std::min(stats.in_flight, stats.backlog);
  const Bytes target = sent_ + std::min(unsent, limit_);
  const Bytes least = blind_ && unsent > 0 ? mtu_ : 0;
  const Bytes missing = std::max(target - std::min(may_send_, target), least);
  wished_ = std::max(wished_, granted_ + credit_units(missing / stats.sharing));
  const uint64_t left = announced_ - std::min(granted_, announced_);
  if (wished_ > announced_ + left / kWishSteps) announced_ = wished_;
}

}  // namespace pacecar
