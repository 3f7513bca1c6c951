#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "bench/sim/run_spec.h"
#include "cc/registry.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

constexpr std::string_view kNoAllocator = "none";  // of algorithms that take no grants

// Sets a host's value; fails if it has another one already. `both` is the error, with places for
// the host, the old value and the new one.
template <typename T>
Result<void> assign(T& slot, const T& value, fmt::format_string<uint32_t&, T&, const T&> both,
                    uint32_t host) {
  if (slot == T()) slot = value;
  if (slot == value) return {};
  return invalid(both, host, slot, value);
}

}  // namespace

Result<Algorithms> algorithms_of(const RunSpec& spec) {
  const size_t hosts = spec.topology.all_processes();
  Algorithms all{std::vector<std::string>(hosts), std::vector<uint32_t>(hosts),
                 std::vector<std::string>(hosts)};
  for (const WorkloadFlow& flow : spec.workload.flows) {
    const WorkloadJob& job = spec.workload.jobs[flow.job];
    const std::string& control =
        job.congestion_control.empty() ? spec.transport.congestion_control : job.congestion_control;
    ASSIGN_OR_RETURN(const auto info, controller_info(control));
    RETURN_IF_ERROR(assign(all.controls[flow.source], control,
                           "host {} would send with both '{}' and '{}': give each job its own "
                           "sending hosts",
                           flow.source));
    RETURN_IF_ERROR(assign(all.weights[flow.source], job.weight,
                           "host {} would send with both weight {} and weight {}: give each job "
                           "its own sending hosts",
                           flow.source));
    const std::string allocator(spec.transport.allocator.empty() ? info.allocator
                                                                 : spec.transport.allocator);
    std::string& slot = all.allocators[flow.destination];
    if (slot == kNoAllocator) slot = allocator;
    if (allocator == kNoAllocator && !slot.empty()) continue;
    RETURN_IF_ERROR(assign(slot, allocator,
                           "host {} would receive with both allocator '{}' and allocator '{}': "
                           "give each job its own receiving hosts, or choose one with "
                           "transport.allocator",
                           flow.destination));
  }
  std::ranges::replace(all.controls, std::string(), spec.transport.congestion_control);
  std::ranges::replace(all.weights, 0U, 1U);
  std::ranges::replace(all.allocators, std::string(), spec.transport.allocator);
  return all;
}

}  // namespace pacecar
