// CreditPacer: the time between two grants of credit, so that the packets sent on it arrive at
// kCredit.rate_percent of a link's rate. Exact over time, except for the rounding of `share`: the
// remainder of each nanosecond division is kept. Purity and thread rule as for Allocator.
#pragma once

#include <cmath>
#include <cstdint>

#include "cc/credit.h"
#include "transport/base/check.h"

namespace pacecar {

class CreditPacer {
 public:
  explicit CreditPacer(const FlowEnvironment& link) {
    PACECAR_CHECK(link.line_rate > Rate() && link.mtu > 0);
    const unsigned __int128 bit_ns = 8'000'000'000U;
    numerator_ = bit_ns * (link.mtu + link.overhead) * 100;
    denominator_ =
        static_cast<unsigned __int128>(link.line_rate.bps()) * link.mtu * kCredit.rate_percent;
  }

  // How long the packets of `payload` bytes occupy the link at `share` of the rate, 0 < share <= 1.
  Duration time_of(Bytes payload, double share = 1) {
    const auto part = static_cast<uint64_t>(std::llround(share * kWhole));
    remainder_ += numerator_ * payload * kWhole / part;
    const auto ns = remainder_ / denominator_;
    remainder_ -= ns * denominator_;
    return Duration::from_ns(static_cast<int64_t>(ns));
  }

 private:
  static constexpr uint64_t kWhole = 1 << 30;  // a share of 1 in fixed point

  // One byte takes this many nanoseconds: numerator / denominator.
  unsigned __int128 numerator_;
  unsigned __int128 denominator_;
  unsigned __int128 remainder_ = 0;  // of the last division
};

}  // namespace pacecar
