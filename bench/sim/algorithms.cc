#include "bench/sim/algorithms.h"

#include <fmt/format.h>

#include <string_view>

#include "cc/registry.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

// Stands for: these algorithms take no grants.
constexpr std::string_view kNoAllocator = "none";

// Sets a host's value; fails if it has another one already. `both`: the error, with places for the
// host, the old value and the new one.
template <typename T>
Result<void> assign(T& slot, const T& value, fmt::format_string<uint32_t&, T&, const T&> both,
                    uint32_t host) {
  if (slot == T()) slot = value;
  if (slot == value) return {};
  return fail(ErrorCode::kInvalidArgument, fmt::format(both, host, slot, value));
}

Result<void> assign_sender(Algorithms& algorithms, uint32_t host, const std::string& control,
                           uint32_t weight) {
  RETURN_IF_ERROR(assign(algorithms.controls[host], control,
                         "host {} would send with both '{}' and '{}': give each job its own "
                         "sending hosts",
                         host));
  return assign(algorithms.weights[host], weight,
                "host {} would send with both weight {} and weight {}: give each job its own "
                "sending hosts",
                host);
}

Result<void> assign_receiver(Algorithms& algorithms, uint32_t host, const std::string& allocator) {
  std::string& slot = algorithms.allocators[host];
  if (slot == kNoAllocator) slot = allocator;
  if (allocator == kNoAllocator && !slot.empty()) return {};
  return assign(slot, allocator,
                "host {} would receive with both allocator '{}' and allocator '{}': give each job "
                "its own receiving hosts, or choose one with transport.allocator",
                host);
}

}  // namespace

Result<Algorithms> algorithms_of(const RunSpec& spec) {
  Algorithms algorithms{std::vector<std::string>(spec.topology.all_processes()),
                        std::vector<uint32_t>(spec.topology.all_processes()),
                        std::vector<std::string>(spec.topology.all_processes())};
  for (const WorkloadFlow& flow : spec.workload.flows) {
    const WorkloadJob& job = spec.workload.jobs[flow.job];
    const std::string& control =
        job.congestion_control.empty() ? spec.transport.congestion_control : job.congestion_control;
    ASSIGN_OR_RETURN(const auto info, controller_info(control));
    auto set = assign_sender(algorithms, flow.source, control, job.weight);
    if (set) {
      set = assign_receiver(algorithms, flow.destination,
                            spec.transport.allocator.empty() ? std::string(info.allocator)
                                                             : spec.transport.allocator);
    }
    if (!set) return tl::unexpected(set.error());
  }
  return algorithms;
}

}  // namespace pacecar
