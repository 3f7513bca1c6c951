// The congestion controls by name, as PACECAR_CC and --cc name them.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "cc/allocator.h"
#include "cc/controller.h"
#include "transport/base/result.h"

namespace pacecar {

struct ControllerInfo {
  std::string_view name;
  std::string_view summary;  // one line: signal and law
};

// All controllers, in the order in which they should be listed.
std::span<const ControllerInfo> controllers();

// Errors: kInvalidArgument with the list of known names. `fixed_rate` is what the controller
// `fixed` sends at (0: line rate); for the others it is an upper bound (0: none).
Result<std::unique_ptr<Controller>> make_controller(std::string_view name,
                                                    const FlowEnvironment& environment,
                                                    Rate fixed_rate);

// The receiver's side: divides `line_rate` among at most `max_flows` flows.
std::unique_ptr<Allocator> make_allocator(Rate line_rate, uint32_t max_flows);

}  // namespace pacecar
