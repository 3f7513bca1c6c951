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
