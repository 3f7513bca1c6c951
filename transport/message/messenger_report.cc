// Reports of Messenger: the status of all flows, and a short report of the last one.
#include "transport/message/messenger.h"

namespace pacecar {

std::vector<FlowStatus> Messenger::flow_statuses(Instant now) const {
  std::vector<FlowStatus> statuses;
  std::vector<size_t> places(flows_.all().size());  // in `statuses`, by FlowId
  for (const FlowId id : flows_.ids()) {
    const MessageFlow& flow = flows_.all()[id];
    places[id] = statuses.size();
    statuses.push_back({flow, rates_.explain(flow, now_), flow.meter.counts()});
  }
  const auto look = [&](const auto& end, uint32_t writes, bool awaits_peer) {
    FlowStatus& status = statuses[places[end.flow->id]];
    status.requests += end.queue.requests();
    const Duration still = end.progress.stalled_for(now);
    if (still <= status.still) return;
    status.still = still;
    status.writes = writes;
    status.awaits_peer = awaits_peer;
  };
  sends_.for_waiting(look);
  receives_.for_waiting(look);
  return statuses;
}

FlowReport Messenger::report() const {
  FlowReport report{.flows = flows_.ids().size(), .hint = rates_.hint()};
  const MessageFlow* flow = flows_.all().find(rates_.last_flow());
  if (flow != nullptr) {
    report.weight = flow->weight;
    report.limits = flow->limits;
    report.rtt = flow->rtt;
  }
  return report;
}

}  // namespace pacecar
