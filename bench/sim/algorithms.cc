#include "bench/sim/algorithms.h"

#include <fmt/format.h>

#include <string_view>

#include "cc/registry.h"

namespace pacecar {
namespace {

// One algorithm for all flows that a host sends, one allocator for all that it receives.
Result<void> assign(std::string& slot, std::string_view name, std::string_view what,
                    uint32_t host) {
  if (slot.empty()) slot = name;
  if (slot == name) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("host {} would {} with both '{}' and '{}': give the jobs hosts of their "
                          "own, or set transport.allocator where only the receiver differs",
                          host, what, slot, name));
}

}  // namespace

Result<Algorithms> algorithms_of(const RunSpec& spec) {
  Algorithms algorithms{std::vector<std::string>(spec.topology.hosts),
                        std::vector<std::string>(spec.topology.hosts)};
  for (const WorkloadFlow& flow : spec.workload.flows) {
    const std::string& own = spec.workload.jobs[flow.job].congestion_control;
    const std::string& control = own.empty() ? spec.transport.congestion_control : own;
    const auto info = controller_info(control);
    if (!info) return tl::unexpected(info.error());
    const std::string_view allocator = spec.transport.allocator.empty()
                                           ? info->allocator
                                           : std::string_view(spec.transport.allocator);
    auto set = assign(algorithms.controls[flow.source], control, "send", flow.source);
    if (set) {
      set = assign(algorithms.allocators[flow.destination], allocator, "receive", flow.destination);
    }
    if (!set) return tl::unexpected(set.error());
  }
  return algorithms;
}

}  // namespace pacecar
