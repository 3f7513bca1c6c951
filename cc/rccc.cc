#include "cc/rccc.h"

#include <algorithm>

#include "cc/credit.h"
#include "transport/base/check.h"

namespace pacecar {
namespace {

// Each word of a wish is a packet: while much of it is still to be granted, it rises in large
// steps.
constexpr uint64_t kWishSteps = 8;

}  // namespace

RcccController::RcccController(const FlowEnvironment& environment)
    : GrantedController(environment.line_rate),
      mtu_(environment.mtu),
      limit_(credit_limit(environment)) {
  PACECAR_CHECK(environment.line_rate > Rate() && environment.mtu > 0);
  own_.rate = environment.line_rate;
  own_.limited_by = limit_at_line(environment);
  // Credit is all that holds the flow back.
  own_.window = no_window(environment);
  start_blind(0);
}

void RcccController::start_blind(Bytes sent) {
  blind_ = true;
  blind_from_ = sent_ = sent;
  may_send_ = sent + limit_;
}

void RcccController::on_word(Bytes sent) {
  sent_ = sent;
  if (!blind_ || sent == blind_from_) return;
  blind_ = false;
  may_send_ = sent;
}

// As for a packet that is sent: what the flow wants may have grown.
void RcccController::on_loss(const LossSample& sample) {
  on_word(sample.sent);
  if (sample.kind == LossKind::kMissing && may_send_ <= sent_) may_ask_ = true;
}

// The first grant ends the blind start like any other word, and is not part of what is lost then.
void RcccController::on_grant(Instant now, const Grant& grant) {
  on_credit_ = grant.is_credit;
  if (!on_credit_) return grant_limit_.on_grant(now, grant);
  const int64_t ahead = credit_ahead(grant.credit, granted_);
  if (ahead <= 0) return;
  granted_ += static_cast<uint64_t>(ahead);
  on_word(sent_);
  if (blind_) return;
  const Bytes most = std::max(may_send_, sent_ + limit_);
  may_send_ = std::min(may_send_ + static_cast<Bytes>(ahead) * kCreditUnit, most);
}

Decision RcccController::decide(Instant now) {
  if (!on_credit_) return grant_limit_.apply(now, own_);
  Decision decision = own_;
  decision.credit = may_send_;
  decision.limited_by = blind_ ? own_.limited_by : LimitedBy::kGrant;
  return decision;
}

// A wish is made with every packet that is sent, as it stands then, and the largest counts. That of
// a flow without credit therefore stays, also where its share of the link has been less than one
// packet, until the receiver grants unasked or kCredit.ask_again has passed.
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

// For what is unsent and has no credit, which may be a packet more than nothing. While it sends
// blindly a flow asks for a packet at least: the receiver then knows of it, and has credit to spare
// for it when something is lost. Of flows that share a link each asks for its part.
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
