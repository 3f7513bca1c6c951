// What Messenger tells of its flows to those who ask.
#include "transport/message/flow.h"
#include "transport/message/messenger.h"

namespace pacecar {

Bytes Messenger::acknowledged_bytes(ConnectionId connection) const {
  return senders_[connection]->flow->standing.acked;
}

Explanation Messenger::explain(ConnectionId connection) const {
  const Flow& flow = *senders_[connection]->flow;
  if (flow.controller == nullptr) return {};
  Explanation told = flow.controller->explain(now_);
  if (flow.standing.backlog == 0) told.limited_by = LimitedBy::kApplication;
  return told;
}

Duration Messenger::rtt(ConnectionId connection) const { return senders_[connection]->flow->rtt; }

std::optional<Stall> Messenger::send_stall(ConnectionId connection) const {
  const Sender& sender = *senders_[connection];
  if (!sender.progress.stalled) return std::nullopt;
  return Stall{.lasted = now_ - sender.progress.since,
               .requests = sender.queue.requests(),
               .writes = sender.queue.outstanding(),
               .awaits_peer = sender.queue.outstanding() == 0 && sender.queue.waiting(),
               .explanation = explain(connection),
               .rtt = sender.flow->rtt};
}

std::optional<Stall> Messenger::receive_stall(ConnectionId connection) const {
  const Receiver& receiver = *receivers_[connection];
  if (!receiver.progress.stalled) return std::nullopt;
  return Stall{.lasted = now_ - receiver.progress.since,
               .requests = receiver.queue.requests(),
               .awaits_peer = true};
}

std::string Messenger::send_fault(ConnectionId connection) const {
  return senders_[connection]->flow->fault;
}

std::string Messenger::receive_fault(ConnectionId connection) const {
  return receivers_[connection]->flow->fault;
}

FlowReport Messenger::report() const {
  FlowReport report{.flows = open_flows_.size(), .hint = hint_};
  const Flow* flow = flows_[last_flow_].get();
  if (flow != nullptr) {
    report.weight = flow->weight;
    report.decision = flow->decision;
    report.rtt = flow->rtt;
    if (flow->controller != nullptr) report.explanation = flow->controller->explain(now_);
  }
  return report;
}

}  // namespace pacecar
