// Predicts collectives that run at the same time and share links, from all steps of all hosts.
#pragma once

#include <algorithm>
#include <set>
#include <span>
#include <vector>

#include "net_plugin/predict/predict.h"

namespace pacecar::predict {

// Seconds, by collective; each names its hosts.
inline std::vector<double> predict_together(const Cluster& cluster,
                                            std::span<const Collective> collectives,
                                            const LibraryCosts& library) {
  constexpr uint32_t kAll = ~0U;
  const Limits limits{.ranks = kAll, .hosts = kAll, .pieces = kAll, .flows = kAll};
  std::set<uint32_t> every;
  for (const Collective& what : collectives) every.insert(what.hosts.begin(), what.hosts.end());
  const std::vector<uint32_t> once(every.begin(), every.end());
  const Network network(cluster, once);
  FlowSet flows;
  std::vector<Plan> plans;
  for (const Collective& what : collectives) {
    plans.push_back(plan_collective({.network = network,
                                     .collective = what,
                                     .overheads = library,
                                     .limits = limits,
                                     .hosts = what.hosts,
                                     .all_hosts = static_cast<uint32_t>(what.hosts.size())},
                                    flows));
  }
  const auto times = run_fluid(flows, network.links());
  std::vector<double> found;
  for (const Plan& plan : plans) {
    double end_s = plan.least_s;
    for (uint32_t flow = plan.flows.begin; flow < plan.flows.end; ++flow) {
      end_s = std::max(end_s, times[flow].received_s);
    }
    found.push_back(end_s + plan.extra_s);
  }
  return found;
}

}  // namespace pacecar::predict
