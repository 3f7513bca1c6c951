// A congestion control by name, for one flow alone.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "cc/registry.h"

namespace pacecar {

// Errors: as make_controllers().
inline Result<std::shared_ptr<Controller>> make_controller(
    std::string_view name, const FlowEnvironment& environment, Rate fixed_rate,
    std::span<const NamedValue> constants = {}) {
  return make_controllers(name, environment, fixed_rate, constants, 1)
      .map([](std::shared_ptr<ControllerSet> set) {
        Controller& controller = set->add_flow(Instant(), 0);
        return std::shared_ptr<Controller>(std::move(set), &controller);
      });
}

}  // namespace pacecar
