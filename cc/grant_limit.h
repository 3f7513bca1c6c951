// GrantLimit: caps a controller's own decision by the newest grant of the receiver. Every
// controller owns one, so that a grant means the same under each of them.
//
// A grant is a peer's word: any content is accepted and made harmless here. Same purity and thread
// rule as Controller.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cc/controller.h"

namespace pacecar {

// No controller goes below this, so that a flow always finds out when things get better.
inline constexpr Rate kMinRate = Rate::from_bps(1'000'000);

class GrantLimit {
 public:
  // Bounds on what a peer may ask for: the shortest validity, and the longest wait before a send.
  static constexpr Duration kMinValidity = Duration::from_us(1);
  static constexpr Duration kMaxValidity = Duration::from_s(10);
  static constexpr Duration kMaxPhase = Duration::from_ms(5);

  explicit GrantLimit(Rate line_rate) : line_rate_(line_rate) {}

  // The newest epoch wins, modulo 2^16; the same epoch again prolongs the grant. A grant that has
  // lapsed gives way to any epoch: its receiver may have started anew.
  // Credit says nothing about a rate.
  void on_grant(Instant now, const Grant& grant) {
    if (grant.is_credit) return;
    const auto ahead = static_cast<int16_t>(static_cast<uint16_t>(grant.epoch - epoch_));
    if (granted_ && ahead < 0 && !lapsed(now)) return;
    if (grant.phase > Duration() && (!granted_ || ahead != 0)) {
      first_send_ = now + std::min(grant.phase, kMaxPhase);
    }
    granted_ = true;
    epoch_ = grant.epoch;
    received_ = now;
    rate_ = std::max(grant.rate, kMinRate);
    validity_ = std::clamp(grant.validity, kMinValidity, kMaxValidity);
  }

  // `own`, slowed down to the grant and held back to its phase.
  Decision apply(Instant now, Decision own) const {
    if (!granted_) return own;
    own.first_send = std::max(own.first_send, first_send_);
    const Rate limit = rate_at(now);
    if (limit < own.rate) {
      own.rate = limit;
      own.limited_by = LimitedBy::kGrant;
    }
    return own;
  }

 private:
  bool lapsed(Instant now) const { return now - received_ >= validity_; }

  // Past its validity a grant is worth half as much with every further period.
  Rate rate_at(Instant now) const {
    if (!lapsed(now)) return rate_;
    const int64_t halvings = std::min<int64_t>((now - received_).ns() / validity_.ns(), 63);
    const Rate floor =
        std::min(rate_, std::max(Rate::from_bps(line_rate_.bps() / kLapsedShare), kMinRate));
    return std::max(Rate::from_bps(rate_.bps() >> halvings), floor);
  }

  static constexpr uint64_t kLapsedShare = 256;  // a lapsed grant falls to line rate / 256

  Rate line_rate_;
  Rate rate_;
  Duration validity_;
  Instant received_;
  Instant first_send_;
  uint16_t epoch_ = 0;
  bool granted_ = false;
};

}  // namespace pacecar
