#include "cc/fixed.h"

#include <algorithm>

namespace pacecar {
namespace {

// The window must never be what limits the flow: twice the bandwidth-delay product, and enough
// bursts to keep both end hosts busy.
constexpr int64_t kWindowRoundTrips = 2;
constexpr Bytes kWindowBursts = 8;
constexpr Duration kUnknownRoundTrip = Duration::from_ms(1);

}  // namespace

FixedController::FixedController(const FlowEnvironment& environment, const Constants&)
    : GrantedController(environment) {
  const Duration rtt = environment.base_rtt > Duration() ? environment.base_rtt : kUnknownRoundTrip;
  const Bytes burst = std::max(environment.burst_bytes, environment.mtu);
  own_.window =
      std::max(environment.line_rate.bytes_in(rtt * kWindowRoundTrips), kWindowBursts * burst);
}

}  // namespace pacecar
