// Common parts of the published rate laws: the base round trip, rates and windows as decisions,
// "once per round trip", and the bounds of a rate. Rates are in bit/s on the wire, windows in
// payload bytes. Purity as for Controller.
#pragma once

#include <algorithm>

#include "cc/controller.h"
#include "cc/grant_limit.h"

namespace pacecar {

// The base round trip (T in the papers): as given, or assumed.
inline Duration base_round_trip(const FlowEnvironment& environment) {
  constexpr Duration kAssumed = Duration::from_us(100);
  constexpr Duration kLongest = Duration::from_s(1);
  if (environment.base_rtt <= Duration()) return kAssumed;
  return std::min(environment.base_rtt, kLongest);
}

// The payload in flight at `bps` for `span`, but at least one packet.
inline Bytes window_for(double bps, Duration span, const FlowEnvironment& environment) {
  const auto mtu = static_cast<double>(environment.mtu);
  const double payload_share = mtu / (mtu + static_cast<double>(environment.overhead));
  const double window = bps / 8 * span.seconds() * payload_share;
  return std::max(static_cast<Bytes>(window), environment.mtu);
}

// For laws without a window: large enough never to limit the flow.
inline Bytes no_window(const FlowEnvironment& environment) {
  return window_for(environment.line_rate.real_bps(), Duration::from_s(1), environment);
}

inline FlowLimits rate_limits(double bps, Bytes window, const FlowEnvironment& environment) {
  const Rate line_rate = environment.line_rate;
  const Rate rate = std::min(Rate::from_bps(static_cast<uint64_t>(bps)), line_rate);
  return {.rate = rate,
          .first_send = {},
          .window = window,
          .limited_by = rate < line_rate ? LimitedBy::kNetwork : limit_at_line(environment)};
}

// A law that moves a rate between min_rate and the line rate, where it begins. It has no window,
// and a new rate does not move the packet that is waiting, unless decide() is overridden.
template <typename LawConstants>
class RateController : public GrantedController {
 public:
  using Constants = LawConstants;

  FlowLimits decide(Instant now) override {
    FlowLimits decision = rate_limits(rate_bps_, no_window(environment_), environment_);
    decision.from_next_packet = true;
    return capped(now, decision);
  }

 protected:
  RateController(const FlowEnvironment& environment, const Constants& constants)
      : GrantedController(environment),
        environment_(environment),
        constants_(constants),
        line_bps_(environment.line_rate.real_bps()),
        min_bps_(std::min(constants.min_rate.real_bps(), line_bps_)),
        rate_bps_(line_bps_) {}

  FlowEnvironment environment_;
  Constants constants_;
  double line_bps_;
  double min_bps_;
  double rate_bps_;  // R_C, or W / T, of the papers
};

// True for the first acknowledged byte, then for the first one sent after the last true.
class OncePerRoundTrip {
 public:
  bool operator()(const FlowSignal& ack) {
    const Bytes acknowledged = ack.sent - std::min(ack.in_flight, ack.sent);
    if (acknowledged <= until_) return false;
    until_ = ack.sent;
    return true;
  }

 private:
  Bytes until_ = 0;
};

}  // namespace pacecar
