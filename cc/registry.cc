#include "cc/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "cc/equal_share.h"
#include "cc/fixed.h"
#include "cc/swift.h"
#include "transport/base/edit_distance.h"

namespace pacecar {
namespace {

using Factory = std::unique_ptr<Controller> (*)(const FlowEnvironment&);

template <typename T>
std::unique_ptr<Controller> make(const FlowEnvironment& environment) {
  return std::make_unique<T>(environment);
}

// The one list of controllers: entry i of both tables is the same controller.
constexpr std::array<ControllerInfo, 2> kControllers{{
    {"swift", "delay target, additive increase and multiplicative decrease (SIGCOMM 2020)"},
    {"fixed", "no signal: line rate, or a given rate"},
}};
constexpr std::array<Factory, kControllers.size()> kFactories{make<SwiftController>,
                                                              make<FixedController>};

std::string unknown_name_message(std::string_view name) {
  std::string known;
  std::string_view nearest;
  size_t nearest_distance = 3;  // anything further away is not a slip of the finger
  for (const ControllerInfo& info : kControllers) {
    fmt::format_to(std::back_inserter(known), "{}{}", known.empty() ? "" : ", ", info.name);
    const size_t distance = edit_distance(name, info.name);
    if (distance < nearest_distance) {
      nearest = info.name;
      nearest_distance = distance;
    }
  }
  const std::string hint =
      nearest.empty() ? std::string() : fmt::format(" (did you mean '{}'?)", nearest);
  return fmt::format("there is no congestion control '{}'{}: use one of {}", name, hint, known);
}

}  // namespace

std::span<const ControllerInfo> controllers() { return kControllers; }

Result<std::unique_ptr<Controller>> make_controller(std::string_view name,
                                                    const FlowEnvironment& environment,
                                                    Rate fixed_rate) {
  FlowEnvironment bounded = environment;
  if (fixed_rate > Rate()) bounded.line_rate = std::min(bounded.line_rate, fixed_rate);
  for (size_t i = 0; i < kControllers.size(); ++i) {
    if (kControllers[i].name == name) return kFactories[i](bounded);
  }
  return fail(ErrorCode::kInvalidArgument, unknown_name_message(name));
}

std::unique_ptr<Allocator> make_allocator(Rate line_rate, uint32_t max_flows) {
  return std::make_unique<EqualShare>(line_rate, max_flows);
}

}  // namespace pacecar
