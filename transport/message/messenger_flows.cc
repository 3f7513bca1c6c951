// Making and ending flows.
#include <algorithm>

#include "transport/message/flow.h"
#include "transport/message/messenger.h"

namespace pacecar {
namespace {

constexpr uint32_t kDataWorkRequests = 256;
constexpr uint32_t kControlWorkRequests = 64;

// Data goes one way; the receiving end of a flow sends only control words.
QueuePairConfig data_config(FlowId flow, bool sending) {
  return {.flow = flow, .work_requests = kDataWorkRequests, .posts = sending};
}

QueuePairConfig control_config(FlowId flow) {
  return {.flow = flow,
          .traffic_class = TrafficClass::kControl,
          .paced = false,
          .work_requests = kControlWorkRequests};
}

}  // namespace

QueuePairMemory Messenger::flow_memory() const {
  const QueuePairMemory data = nic_.queue_pair_memory(data_config(0, true));
  const QueuePairMemory control = nic_.queue_pair_memory(control_config(0));
  return {sizeof(Flow) + 3 * sizeof(uint64_t) + data.state + control.state,
          data.queues + control.queues};
}

Result<Messenger::Flow*> Messenger::make_flow(bool sending, const NicIdentity& peer,
                                              uint64_t number) {
  if (flows_.full()) {
    return fail(ErrorCode::kUnavailable,
                "all flows of the NIC are used: close connections or raise PACECAR_MAX_FLOWS");
  }
  const FlowId place = flows_.next();
  auto flow = std::make_unique<Flow>();
  flow->id = place;
  flow->sending = sending;
  flow->peer = peer;
  flow->number = number;
  words_in_[place] = words_seen_[place] = words_out_[place] = 0;
  const auto data = nic_.create_queue_pair(data_config(flow->id, sending));
  if (!data) return tl::unexpected(data.error());
  const auto control = nic_.create_queue_pair(control_config(flow->id));
  const auto region = expose(nic_, words_in_[place]);
  if (!control || !region) {
    nic_.destroy_queue_pair(*data);
    if (control) nic_.destroy_queue_pair(*control);
    if (region) nic_.deregister_memory(*region);
    return tl::unexpected(control ? region.error() : control.error());
  }
  flow->data = *data;
  flow->control = *control;
  flow->word_region = *region;
  flow->local = FlowEnd{nic_.queue_pair_address(*data), nic_.queue_pair_address(*control),
                        remote_address_of(*region)};
  open_flows_.push_back(place);
  flow_ids_[*data] = flow_ids_[*control] = place;
  flows_with_.emplace(peer, place);
  return &flows_.add(std::move(flow));
}

// A sender finds a flow for a new connection by its peer alone; a receiver finds the flow of an
// offer by its number.
Messenger::Flow* Messenger::find_flow(bool sending, const NicIdentity& peer,
                                      std::optional<uint64_t> number) {
  const auto [begin, end] = flows_with_.equal_range(peer);
  for (auto known = begin; known != end; ++known) {
    Flow& flow = flows_[known->second];
    if (flow.sending != sending || flow.state == Flow::State::kBroken) continue;
    const bool shareable =
        flow.state != Flow::State::kLeaving && !flow.doubted && !flow.numbered.full();
    if (number ? flow.number == *number : shareable) return &flow;
  }
  return nullptr;
}

// nullptr: the flow has broken or ended.
Messenger::Flow* Messenger::flow_of(QueuePairId queue_pair) const {
  const auto found = flow_ids_.find(queue_pair);
  return found == flow_ids_.end() ? nullptr : flows_.find(found->second);
}

Result<void> Messenger::join(Flow& flow, const FlowEnd& remote, Instant now) {
  if (auto joined = nic_.connect_queue_pair(flow.data, remote.data.view()); !joined) return joined;
  if (auto joined = nic_.connect_queue_pair(flow.control, remote.control.view()); !joined) {
    return joined;
  }
  flow.remote = remote;
  flow.peer_address = nic_.peer(flow.data);
  flow.state = Flow::State::kOpen;
  flow.last_word = now;
  look_ = true;  // the peer may have written already
  if (!flow.sending) {
    if (flow.obeys) allocator_->add_flow(now, flow.id);
    return {};
  }
  flow.controller = &controllers_->add_flow(now, flow.id);
  controllers_->set_weight(now, flow.id, flow.weight);
  decide(flow, now);
  return {};
}

void Messenger::leave(Flow& flow, Instant now) {
  if (--flow.connections > 0) return;
  if (flow.state != Flow::State::kOpen) return destroy_flow(flow);
  flow.state = Flow::State::kLeaving;
  flow.leave_at = now + config_.silence_limit / 5;  // housekeeping is due: a connection has ended
}

void Messenger::destroy_flow(Flow& flow) {
  if (flow.state != Flow::State::kJoining) {
    if (flow.obeys) allocator_->remove_flow(now_, flow.id);
    if (flow.controller != nullptr) controllers_->remove_flow(now_, flow.id);
  }
  if (flow.state != Flow::State::kBroken) destroy_queue_pairs(flow);
  nic_.deregister_memory(flow.word_region);
  word_pending_.remove(flow.id);
  std::erase(open_flows_, flow.id);
  const auto [begin, end] = flows_with_.equal_range(flow.peer);
  flows_with_.erase(
      std::find_if(begin, end, [&flow](const auto& known) { return known.second == flow.id; }));
  flows_.remove(flow.id);
}

// Forgets their ids, too: the NIC may reuse them.
void Messenger::destroy_queue_pairs(const Flow& flow) {
  for (const QueuePairId id : {flow.data, flow.control}) {
    nic_.destroy_queue_pair(id);
    flow_ids_.erase(id);
  }
}

void Messenger::weigh(Flow& flow, Instant now) {
  uint32_t weight = 1;
  for (const ConnectionId id : flow.numbered.all()) {
    if (id == FlowConnections::kNone) continue;
    weight = std::max(weight, flow.sending ? senders_[id].weight : receivers_[id].weight);
  }
  if (weight == flow.weight) return;
  flow.weight = weight;
  if (flow.controller != nullptr) controllers_->set_weight(now, flow.id, weight);
  if (flow.obeys) allocator_->set_weight(now, flow.id, weight);
}

void Messenger::break_flow(Flow& flow, MessageFailure failure) {
  flow.state = Flow::State::kBroken;
  destroy_queue_pairs(flow);
  for (const ConnectionId id : flow.numbered.all()) {
    if (id == FlowConnections::kNone) continue;
    if (flow.sending) {
      fail_connection(senders_[id], failure);
    } else {
      fail_connection(receivers_[id], failure);
    }
  }
  housekeeping_due_ = true;
}

}  // namespace pacecar
