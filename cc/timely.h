// `timely`: adjusts the rate by how fast the round trip grows or shrinks, between two delay
// thresholds. After Mittal et al., "TIMELY: RTT-based Congestion Control for the Datacenter",
// SIGCOMM 2015, algorithm 1; papers.md names the deviations. Made for lossless networks: it has no
// window and does not react to losses. Invariant: the rate is between min_rate and the line rate.
#pragma once

#include <array>

#include "cc/constants.h"
#include "cc/controller.h"
#include "cc/rate_law.h"

namespace pacecar {

struct TimelyConstants {
  Duration low_threshold = Duration::from_us(50);
  Duration high_threshold = Duration::from_us(500);
  Duration gradient_unit = Duration::from_us(20);
  double smoothing = 0.875;
  double decrease = 0.8;
  Rate additive_increase = Rate::from_bps(10'000'000);
  Rate hyper_increase = Rate::from_bps(50'000'000);
  int hyper_after = 5;
  Rate min_rate = Rate::from_bps(100'000'000);

  static constexpr auto table() {
    using C = TimelyConstants;
    return std::to_array<Constant<C>>({
        {"low_threshold", "us", 0, 1e6, &C::low_threshold,
         "T_low: below, always increase; algorithm 1"},
        {"high_threshold", "us", 1, 1e6, &C::high_threshold,
         "T_high: above, always decrease; algorithm 1"},
        {"gradient_unit", "us", 0.1, 1e6, &C::gradient_unit,
         "minimum round trip that normalises the gradient; algorithm 1"},
        {"smoothing", "1", 0.01, 1, &C::smoothing,
         "alpha, the weight of a new difference; algorithm 1"},
        {"decrease", "1", 0.01, 1, &C::decrease, "beta; algorithm 1"},
        {"additive_increase", "Mb/s", 0, 10'000, &C::additive_increase, "delta; algorithm 1"},
        {"hyper_increase", "Mb/s", 0, 100'000, &C::hyper_increase,
         "5 delta, after hyper_after increases in a row; section 4"},
        {"hyper_after", "increases", 0, 1000, &C::hyper_after, "N; section 4"},
        {"min_rate", "Mb/s", 1, 100'000, &C::min_rate, "evaluation code of HPCC"},
    });
  }
};

class TimelyController final : public RateController<TimelyConstants> {
 public:
  explicit TimelyController(const FlowEnvironment& environment, const Constants& constants = {});

  std::string_view name() const override { return "timely"; }
  void on_ack(Instant now, const FlowSignal& ack) override;

 private:
  double decrease_factor(Duration rtt) const;

  OncePerRoundTrip once_per_round_trip_;
  Duration rtt_before_;    // 0 before the first sample
  double difference_ = 0;  // ns between successive round trips, smoothed
  int increases_ = 0;      // in a row
};

}  // namespace pacecar
