#include "bench/workload/processes.h"

#include <algorithm>

namespace pacecar {

Workload on_processes(const Workload& hosts, uint32_t per_host, std::span<const uint32_t> places,
                      CopyBytes bytes) {
  Workload all{.name = hosts.name, .hosts = hosts.hosts * per_host, .jobs = hosts.jobs};
  uint64_t ids = 0;  // of one copy
  for (const WorkloadFlow& flow : hosts.flows) ids = std::max(ids, flow.id + 1);
  for (size_t copy = 0; copy < places.size(); ++copy) {
    const auto first_trigger = static_cast<uint32_t>(all.triggers.size());
    for (WorkloadFlow flow : hosts.flows) {
      flow.source = flow.source * per_host + places[copy];
      flow.destination = flow.destination * per_host + places[copy];
      flow.id += copy * ids;
      if (bytes == CopyBytes::kDivided) {
        flow.bytes = std::max<Bytes>(flow.bytes / places.size(), 1);
      }
      if (flow.trigger != kNoTrigger) flow.trigger += first_trigger;
      for (uint32_t& trigger : flow.on_sent) trigger += first_trigger;
      for (uint32_t& trigger : flow.on_received) trigger += first_trigger;
      all.flows.push_back(std::move(flow));
    }
    all.triggers.insert(all.triggers.end(), hosts.triggers.begin(), hosts.triggers.end());
  }
  return all;
}

}  // namespace pacecar
