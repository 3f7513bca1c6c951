// `fixed`: sends at the given rate and ignores signs of congestion; only a grant slows it down. The
// baseline of experiments, and the choice for a network that cannot congest.
#pragma once

#include "cc/constants.h"
#include "cc/controller.h"
#include "cc/grant_limit.h"

namespace pacecar {

class FixedController final : public GrantedController {
 public:
  using Constants = NoConstants;

  // Sends at environment.line_rate.
  explicit FixedController(const FlowEnvironment& environment, const Constants& = {});

  std::string_view name() const override { return "fixed"; }
  void on_ack(Instant, const FlowSignal&) override {}
};

}  // namespace pacecar
