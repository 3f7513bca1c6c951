// `hpcc`: keeps the bytes in flight on the most loaded link just below its bandwidth-delay product,
// from in-band telemetry. After Li et al., "HPCC: High Precision Congestion Control", SIGCOMM 2019,
// algorithm 1; papers.md names the deviations. Requirements and invariants: see InbandController.
#pragma once

#include <array>

#include "cc/constants.h"
#include "cc/controller.h"
#include "cc/inband_signal.h"

namespace pacecar {

struct HpccConstants {
  double target_load = 0.95;
  int max_stage = 5;
  Rate additive_increase = Rate::from_bps(50'000'000);
  Rate min_rate = Rate::from_bps(100'000'000);

  static constexpr auto table() {
    using C = HpccConstants;
    return std::to_array<Constant<C>>({
        {"target_load", "1", 0.5, 1, &C::target_load, "eta; the paper's evaluation"},
        {"max_stage", "rounds", 0, 1000, &C::max_stage,
         "additive increases in a row before a multiplicative one; the paper's evaluation"},
        {"additive_increase", "Mb/s", 0, 10'000, &C::additive_increase,
         "W_AI as a rate; the paper's evaluation code"},
        {"min_rate", "Mb/s", 1, 100'000, &C::min_rate, "the paper's evaluation code"},
    });
  }
};

class HpccController final : public InbandController<HpccConstants> {
 public:
  explicit HpccController(const FlowEnvironment& environment, const Constants& constants = {})
      : InbandController(environment, constants) {}

  std::string_view name() const override { return "hpcc"; }
  void on_ack(Instant now, const FlowSignal& ack) override;

 private:
  int stage_ = 0;  // additive increases since the last multiplicative change
};

}  // namespace pacecar
