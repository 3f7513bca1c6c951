// The congestion controls, as PACECAR_CC and --cc name them, and the allocators that go with them.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cc/allocator.h"
#include "cc/constants.h"
#include "cc/controller_set.h"
#include "transport/base/result.h"

namespace pacecar {

struct PaceConstants;

struct ControllerInfo {
  std::string_view name;
  std::string_view summary;                  // one line: signal and law
  std::string_view allocator;                // the receiver's allocator that goes with it
  bool needs_telemetry;                      // its signal is the switches' telemetry (telemetry.h)
  std::vector<ConstantInfo> (*constants)();  // that can be set; for the control path
  Result<std::unique_ptr<ControllerSet>> (*make)(std::string_view name,
                                                 const FlowEnvironment& environment,
                                                 std::span<const NamedValue> constants,
                                                 uint32_t max_flows);  // See make_controllers().
};

struct AllocatorInfo {
  std::string_view name;
  std::string_view summary;
  std::unique_ptr<Allocator> (*make)(const FlowEnvironment& environment, uint32_t max_flows,
                                     const PaceConstants& constants);  // See make_allocator().
};

// All algorithms, in the order in which they should be listed.
std::span<const ControllerInfo> controllers();
std::span<const AllocatorInfo> allocators();

// The controllers of all flows of a NIC, at most `max_flows`. `fixed_rate` is the rate at which the
// controller `fixed` sends (0: line rate); for the others it is an upper bound (0: none). Errors:
// kInvalidArgument with the valid choices, for an unknown name or constant or a value out of range.
Result<std::unique_ptr<ControllerSet>> make_controllers(std::string_view name,
                                                        const FlowEnvironment& environment,
                                                        Rate fixed_rate,
                                                        std::span<const NamedValue> constants,
                                                        uint32_t max_flows);

// The receiver's side: divides environment.line_rate among at most `max_flows` flows. `constants`
// belong to the matching congestion control. Errors as for controllers.
Result<std::unique_ptr<Allocator>> make_allocator(std::string_view name,
                                                  const FlowEnvironment& environment,
                                                  uint32_t max_flows,
                                                  std::span<const NamedValue> constants = {});

// One of controllers(). Errors: kInvalidArgument with the known names.
Result<ControllerInfo> controller_info(std::string_view name);

}  // namespace pacecar
