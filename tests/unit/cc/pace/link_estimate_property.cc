// The link estimate that a process learns stays in bounds, for any arrivals and delays.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "cc/pace/constants.h"
#include "cc/pace/link_estimate.h"

namespace pacecar::link_estimate_property {
namespace {

Duration any_span() {
  const auto scale = *rc::gen::element<int64_t>(1, 1000, 1'000'000, 100'000'000);
  return Duration::from_ns(*rc::gen::inRange<int64_t>(0, 1000) * scale);
}

Duration any_excess() {
  return *rc::gen::weightedElement<bool>({{4, true}, {1, false}}) ? any_span() : Duration::max();
}

constexpr PaceConstants kConstants;

FlowEnvironment any_link() {
  return {.line_rate = Rate::from_bps(*rc::gen::inRange<uint64_t>(1, 1'000'000) *
                                      *rc::gen::element<uint64_t>(1, 1000, 1'000'000)),
          .mtu = *rc::gen::inRange<Bytes>(1, 65'536),
          .jitter = Duration::from_ns(*rc::gen::inRange<int64_t>(0, 1'000'000)),
          .first_rate =
              Rate::from_bps(*rc::gen::element<uint64_t>(0, 0, 1, 1'000'000, 1'000'000'000'000))};
}

// A link estimate with random inputs, and the part of the link that it was given.
class AnyEstimate {
 public:
  AnyEstimate()
      : link_(any_link()),
        estimate_(link_, Duration::from_ns(*rc::gen::inRange<int64_t>(0, 10'000'000)), kConstants),
        nominal_(static_cast<double>(link_.line_rate.bps())),
        part_(nominal_) {}

  // True where the rate may have changed.
  bool step() {
    now_ = now_ + any_span();
    switch (*rc::gen::inRange(0, 11)) {
      case 0:
        estimate_.set_use(nominal_ * *rc::gen::element(0.001, 0.5, 1.0),
                          *rc::gen::element(0.001, 1.0, 3.5, 1000.0));
        return false;
      case 1: estimate_.set_round_trip(any_span()); return false;
      case 2:
        part_ = nominal_ / *rc::gen::inRange(1, 1000);
        estimate_.set_part(part_);
        return true;
      default: return stream();
    }
  }

  void check() const {
    const double rate = estimate_.line();
    RC_ASSERT(std::isfinite(rate));
    RC_ASSERT(rate > 0);
    RC_ASSERT(rate <= nominal_);
    RC_ASSERT(rate <= part_);
    // b is at least 100 kb/s, unless it began below; while it drains a queue, 5/8 of that.
    const bool began_low = link_.first_rate == Rate::from_bps(1);
    RC_ASSERT(began_low || rate >= std::min({100e3 * 0.625, nominal_ * 0.625, part_}) * 0.9999);
    for (const size_t flows : {1, 2}) {
      const double available = estimate_.available(flows);
      RC_ASSERT(available <= rate);
      RC_ASSERT(available >= 0.5 * kConstants.least_share * rate);
    }
  }
  double rate() const { return estimate_.line(); }

 private:
  // Some packets at one rate, all with the same excess delay.
  bool stream() {
    const Duration gap = any_span() / 100;
    const Duration excess = any_excess();
    const bool covered = *rc::gen::element(true, true, true, false);
    const Bytes wire = *rc::gen::element<Bytes>(0, 1, link_.mtu, 1'000'000, Bytes{1} << 40);
    bool changed = false;
    for (int i = *rc::gen::inRange(1, 50); i > 0; --i) {
      now_ = now_ + gap;
      const double before = estimate_.available(2);
      const bool told = estimate_.on_arrival(now_, wire, covered, excess, /*flow=*/0);
      RC_ASSERT(told || estimate_.available(2) == before);
      changed |= told;
      check();
    }
    return changed;
  }

  const FlowEnvironment link_;
  LinkEstimate estimate_;
  const double nominal_;
  double part_;
  Instant now_ = Instant::from_ns(1'000'000'000);
};

RC_GTEST_PROP(CcPaceLinkEstimateProperty, EstimateStaysInBounds, ()) {
  AnyEstimate estimate;
  estimate.check();
  for (int i = *rc::gen::inRange(0, 60); i > 0; --i) {
    const double before = estimate.rate();
    const bool may_change = estimate.step();
    estimate.check();
    RC_ASSERT(may_change || estimate.rate() == before);
  }
}

// After any history, a link without queues is used in full again.
RC_GTEST_PROP(CcPaceLinkEstimateProperty, EstimateRecoversToTheLineRateWithoutQueues, ()) {
  const Rate line = Rate::from_gbps(1);
  LinkEstimate estimate({.line_rate = line, .mtu = 4096, .jitter = Duration::from_us(10)},
                        Duration::from_us(100), kConstants);
  const auto packet = [&](Instant now, Duration late) {
    estimate.on_arrival(now, 4096, /*covered=*/true, late, /*flow=*/0);
  };
  Instant now = Instant::from_ns(1'000'000'000);
  for (int i = *rc::gen::inRange(0, 20); i > 0; --i) {
    const Duration gap = Duration::from_us(*rc::gen::inRange<int64_t>(30, 3000));
    const Duration late = Duration::from_us(*rc::gen::inRange<int64_t>(0, 20'000));
    for (int packets = 0; packets < 100; ++packets) {
      now = now + gap;
      packet(now, late);
    }
  }
  const auto full = static_cast<double>(line.bps());
  for (const Instant end = now + Duration::from_s(5); now < end && estimate.line() < full;) {
    now = now + Duration::from_ns(static_cast<int64_t>(4096 * 8e9 / estimate.line()));
    packet(now, Duration());
  }
  RC_ASSERT(estimate.line() == full);
}

}  // namespace
}  // namespace pacecar::link_estimate_property
