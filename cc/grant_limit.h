// GrantedController: a controller whose own decision is capped by the newest grant of the receiver.
// Every controller but PaceController is one. rccc and sird on credit obey their credit instead. A
// peer sends the grant: any content is bounded here. Same purity and thread rule as Controller.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cc/controller.h"
#include "transport/base/check.h"

namespace pacecar {

// No controller goes below this, so that a flow always notices when congestion ends.
inline constexpr Rate kMinRate = Rate::from_bps(1'000'000);

class GrantedController : public Controller {
 public:
  // Bounds on a peer's grant: the validity, and the longest wait before a send.
  static constexpr Duration kMinValidity = Duration::from_us(1);
  static constexpr Duration kMaxValidity = Duration::from_s(10);
  static constexpr Duration kMaxPhase = Duration::from_ms(5);

  // The newest epoch wins, modulo 2^16; the same epoch prolongs the grant. An expired grant is
  // replaced by any epoch: its receiver may have restarted. Credit is ignored.
  void on_grant(Instant now, const Grant& grant) override {
    if (grant.is_credit) return;
    const auto ahead = static_cast<int16_t>(static_cast<uint16_t>(grant.epoch - epoch_));
    if (has_grant_ && ahead < 0 && !lapsed(now)) return;
    if (grant.phase > Duration() && (!has_grant_ || ahead != 0)) {
      first_send_ = now + std::min(grant.phase, kMaxPhase);
    }
    has_grant_ = true;
    phase_ = grant.phase;
    epoch_ = grant.epoch;
    received_ = now;
    rate_ = std::max(grant.rate, kMinRate);
    validity_ = std::clamp(grant.validity, kMinValidity, kMaxValidity);
  }

  FlowLimits decide(Instant now) override { return capped(now, own_); }
  Explanation explain(Instant now) override {
    const FlowLimits decision = decide(now);
    Explanation explanation{.limited_by = decision.limited_by, .rate = decision.rate};
    if (!has_grant_) return explanation;
    explanation.grant = rate_at(now);
    explanation.grant_age = now - received_;
    explanation.phase = phase_;
    explanation.epoch = epoch_;
    return explanation;
  }

 protected:
  explicit GrantedController(const FlowEnvironment& environment)
      : own_{.rate = environment.line_rate, .limited_by = limit_at_line(environment)},
        line_rate_(environment.line_rate) {
    PACECAR_CHECK(environment.line_rate > Rate() && environment.mtu > 0);
  }

  // `own` with at most the granted rate, and not before the grant's phase.
  FlowLimits capped(Instant now, FlowLimits own) const {
    if (!has_grant_) return own;
    own.first_send = std::max(own.first_send, first_send_);
    const Rate limit = rate_at(now);
    if (limit >= own.rate) return own;
    // A grant of all that the flow could use is smaller by the rounding of its word.
    if (limit.bps() < own.rate.bps() - (own.rate.bps() >> kWordPrecision)) {
      own.limited_by = LimitedBy::kGrant;
    }
    own.rate = limit;
    return own;
  }

  FlowLimits own_;  // before the grant

 private:
  bool lapsed(Instant now) const { return now - received_ >= validity_; }

  // An expired grant halves with every further validity period.
  Rate rate_at(Instant now) const {
    if (!lapsed(now)) return rate_;
    const int64_t halvings = std::min<int64_t>((now - received_).ns() / validity_.ns(), 63);
    const Rate floor =
        std::min(rate_, std::max(Rate::from_bps(line_rate_.bps() / kLapsedShare), kMinRate));
    return std::max(Rate::from_bps(rate_.bps() >> halvings), floor);
  }

  static constexpr uint64_t kLapsedShare = 256;   // an expired grant falls to line rate / 256
  static constexpr unsigned kWordPrecision = 16;  // least precision of a rate in a grant word, bits

  Rate line_rate_;
  Rate rate_;
  Duration validity_;
  Instant received_;
  Instant first_send_;
  Duration phase_;
  uint16_t epoch_ = 0;
  bool has_grant_ = false;
};

}  // namespace pacecar
