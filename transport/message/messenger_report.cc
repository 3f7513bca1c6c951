// Reports of Messenger: flows, stalls and faults.
#include "transport/message/flow.h"
#include "transport/message/messenger.h"

namespace pacecar {

Bytes Messenger::acknowledged_bytes(ConnectionId connection) const {
  return senders_[connection].flow->stats.acked;
}

Explanation Messenger::explain(ConnectionId connection) const {
  return explain(*senders_[connection].flow);
}

Explanation Messenger::explain(const Flow& flow) const {
  if (flow.controller == nullptr) return {.limited_by = LimitedBy::kApplication};
  Explanation explanation = flow.controller->explain(now_);
  explanation.rate_max = config_.rate_max;
  explanation.limited_by = flow.limits.limit(explanation, flow.stats);
  return explanation;
}

bool Messenger::awaits_buffer(const Sender& sender) {
  return sender.queue.outstanding() == 0 && sender.queue.waiting();
}

Duration Messenger::rtt(ConnectionId connection) const { return senders_[connection].flow->rtt; }

std::optional<Stall> Messenger::send_stall(ConnectionId connection) const {
  const Sender& sender = senders_[connection];
  if (!sender.progress.stalled) return std::nullopt;
  return Stall{.lasted = now_ - sender.progress.since,
               .requests = sender.queue.requests(),
               .writes = sender.queue.outstanding(),
               .awaits_peer = awaits_buffer(sender),
               .explanation = explain(connection),
               .rtt = sender.flow->rtt};
}

std::optional<Stall> Messenger::receive_stall(ConnectionId connection) const {
  const Receiver& receiver = receivers_[connection];
  if (!receiver.progress.stalled) return std::nullopt;
  return Stall{.lasted = now_ - receiver.progress.since,
               .requests = receiver.queue.requests(),
               .awaits_peer = true};
}

std::string Messenger::send_fault(ConnectionId connection) const {
  return senders_[connection].flow->fault;
}

std::string Messenger::receive_fault(ConnectionId connection) const {
  return receivers_[connection].flow->fault;
}

FlowStatus Messenger::status(const Flow& flow) const {
  return {.sending = flow.sending,
          .state = flow.state,
          .peer = flow.peer,
          .peer_address = flow.peer_address,
          .number = flow.number,
          .connections = flow.connections,
          .weight = flow.weight,
          .stats = flow.stats,
          .explanation =
              flow.obeys ? Explanation{.grant = allocator_->grant(flow.id).rate} : explain(flow),
          .limits = flow.limits.counts(),
          .rtt = flow.rtt,
          .fault = flow.fault};
}

std::vector<FlowStatus> Messenger::flow_statuses(Instant now) const {
  std::vector<FlowStatus> statuses;
  std::vector<size_t> places(flows_.size());  // in `statuses`, by FlowId
  for (const FlowId id : open_flows_) {
    places[id] = statuses.size();
    statuses.push_back(status(flows_[id]));
  }
  const auto look = [&](const auto& end, uint32_t writes, bool awaits_peer) {
    FlowStatus& status = statuses[places[end.flow->id]];
    status.requests += end.queue.requests();
    const Duration still = now - end.progress.since;
    if (still <= status.still) return;
    status.still = still;
    status.writes = writes;
    status.awaits_peer = awaits_peer;
  };
  for (size_t i = 0; i < open_senders_.size(); ++i) {
    const Sender& sender = senders_[open_senders_[i]];
    if (sender.progress.waits) look(sender, sender.queue.outstanding(), awaits_buffer(sender));
  }
  for (size_t i = 0; i < open_receivers_.size(); ++i) {
    const Receiver& receiver = receivers_[open_receivers_[i]];
    if (receiver.progress.waits) look(receiver, 0, true);
  }
  return statuses;
}

FlowReport Messenger::report() const {
  FlowReport report{.flows = open_flows_.size(), .hint = hint_};
  const Flow* flow = flows_.find(last_flow_);
  if (flow != nullptr) {
    report.weight = flow->weight;
    report.decision = flow->decision;
    report.rtt = flow->rtt;
    report.explanation = explain(*flow);
  }
  return report;
}

}  // namespace pacecar
