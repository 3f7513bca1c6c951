// `powertcp`: holds the power of the most loaded link (arrival rate x bytes in flight) at that of a
// full link without a queue, from in-band telemetry; it reacts to a queue's length and to its
// growth. After Addanki et al., "PowerTCP: Pushing the Performance Limits of Datacenter Networks",
// NSDI 2022, algorithm 1; papers.md names the deviations.
// Requirements and invariants: see InbandController.
#pragma once

#include <array>

#include "cc/constants.h"
#include "cc/controller.h"
#include "cc/inband_signal.h"

namespace pacecar {

struct PowerTcpConstants {
  double smoothing = 0.9;
  Rate additive_increase = Rate::from_bps(150'000'000);
  double target_power = 0.95;
  double least_arrivals = 0.5;
  Rate min_rate = Rate::from_bps(100'000'000);

  static constexpr auto table() {
    using C = PowerTcpConstants;
    return std::to_array<Constant<C>>({
        {"smoothing", "1", 0.01, 1, &C::smoothing,
         "gamma, the weight of a new window; algorithm 1"},
        {"additive_increase", "Mb/s", 0, 10'000, &C::additive_increase,
         "beta as a rate; the paper's evaluation code"},
        {"target_power", "1", 0.5, 1, &C::target_power,
         "of a full link; the paper's evaluation code (1 in the text)"},
        {"least_arrivals", "1", 0, 1, &C::least_arrivals,
         "share of the line that counts as arriving at least; the paper's evaluation code"},
        {"min_rate", "Mb/s", 1, 100'000, &C::min_rate, "the paper's evaluation code"},
    });
  }
};

class PowerTcpController final : public InbandController<PowerTcpConstants> {
 public:
  explicit PowerTcpController(const FlowEnvironment& environment, const Constants& constants = {})
      : InbandController(environment, constants) {}

  std::string_view name() const override { return "powertcp"; }
  void on_ack(Instant now, const FlowSignal& ack) override;

 private:
  double normalized_power(const HopChange& hop) const;
};

}  // namespace pacecar
