#include "transport/message/flow_table.h"

#include <algorithm>

#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

constexpr uint32_t kDataWorkRequests = 256;
constexpr uint32_t kControlWorkRequests = 64;

// Data goes one way; the receiving end of a flow sends only control writes.
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

FlowTable::FlowTable(Nic& nic, const MessengerConfig& config, ControlWrites& control,
                     RateControl& rates)
    : nic_(nic), config_(config), control_(control), rates_(rates), flows_(nic.caps().flows) {}

void FlowTable::stop() {
  for (const FlowId id : ids_) {
    if (flows_[id].state != FlowState::kBroken) destroy_queue_pairs(flows_[id]);
  }
}

QueuePairMemory FlowTable::flow_memory() const {
  const QueuePairMemory data = nic_.queue_pair_memory(data_config(0, true));
  const QueuePairMemory control = nic_.queue_pair_memory(control_config(0));
  return {sizeof(MessageFlow) + 3 * sizeof(uint64_t) + data.state + control.state,
          data.queues + control.queues};
}

Result<MessageFlow*> FlowTable::make(bool sending, const NicIdentity& peer, uint64_t number) {
  if (flows_.full()) {
    return fail(ErrorCode::kUnavailable,
                "all flows of the NIC are used: close connections or raise PACECAR_MAX_FLOWS");
  }
  const FlowId place = flows_.next();
  auto flow = std::make_unique<MessageFlow>();
  flow->id = place;
  flow->sending = sending;
  flow->peer = peer;
  flow->number = number;
  ASSIGN_OR_RETURN(const auto data, nic_.create_queue_pair(data_config(place, sending)));
  const auto control = nic_.create_queue_pair(control_config(place));
  const auto region = control_.expose_word(place);
  if (!control || !region) {
    nic_.destroy_queue_pair(data);
    if (control) nic_.destroy_queue_pair(*control);
    if (region) nic_.deregister_memory(*region);
    return tl::unexpected(control ? region.error() : control.error());
  }
  flow->data = data;
  flow->control = *control;
  flow->word_region = *region;
  flow->local = FlowEnd{nic_.queue_pair_address(data), nic_.queue_pair_address(*control),
                        remote_address_of(*region)};
  ids_.push_back(place);
  by_queue_pair_[data] = by_queue_pair_[*control] = place;
  by_peer_.emplace(peer, place);
  return &flows_.add(std::move(flow));
}

template <typename Fits>
MessageFlow* FlowTable::find_if(const NicIdentity& peer, Fits fits) const {
  const auto [begin, end] = by_peer_.equal_range(peer);
  for (auto known = begin; known != end; ++known) {
    MessageFlow& flow = flows_[known->second];
    if (flow.state != FlowState::kBroken && fits(flow)) return &flow;
  }
  return nullptr;
}

MessageFlow* FlowTable::find_shareable(const NicIdentity& receiver) const {
  return find_if(receiver, [](const MessageFlow& flow) {
    return flow.sending && flow.state != FlowState::kLeaving && !flow.suspected &&
           !flow.numbered.full();
  });
}

MessageFlow* FlowTable::find(const NicIdentity& sender, uint64_t number) const {
  return find_if(
      sender, [number](const MessageFlow& flow) { return !flow.sending && flow.number == number; });
}

MessageFlow* FlowTable::of(QueuePairId queue_pair) const {
  const auto found = by_queue_pair_.find(queue_pair);
  return found == by_queue_pair_.end() ? nullptr : flows_.find(found->second);
}

Result<void> FlowTable::join(MessageFlow& flow, const FlowEnd& remote, Instant now) {
  RETURN_IF_ERROR(nic_.connect_queue_pair(flow.data, remote.data.view()));
  RETURN_IF_ERROR(nic_.connect_queue_pair(flow.control, remote.control.view()));
  flow.remote = remote;
  flow.peer_address = nic_.peer(flow.data);
  flow.state = FlowState::kOpen;
  flow.last_word = now;
  rates_.add_flow(flow, now);
  return {};
}

void FlowTable::release(MessageFlow& flow, Instant now) {
  if (--flow.connections > 0) return;
  if (flow.state != FlowState::kOpen) return remove(flow, now);
  flow.watch = {};  // its file descriptors are wanted back
  flow.state = FlowState::kLeaving;
  flow.leave_at = now + config_.keep_alive;
  housekeeping_due_ = true;
}

void FlowTable::end(MessageFlow& flow) {
  flow.state = FlowState::kBroken;
  destroy_queue_pairs(flow);
  housekeeping_due_ = true;
}

void FlowTable::remove(MessageFlow& flow, Instant now) {
  rates_.remove_flow(flow, now);
  if (flow.state != FlowState::kBroken) destroy_queue_pairs(flow);
  nic_.deregister_memory(flow.word_region);
  control_.forget(flow.id);
  std::erase(ids_, flow.id);
  const auto [begin, end] = by_peer_.equal_range(flow.peer);
  by_peer_.erase(
      std::find_if(begin, end, [&flow](const auto& known) { return known.second == flow.id; }));
  flows_.remove(flow.id);
}

// Forgets their ids, too: the NIC may reuse them.
void FlowTable::destroy_queue_pairs(const MessageFlow& flow) {
  for (const QueuePairId id : {flow.data, flow.control}) {
    nic_.destroy_queue_pair(id);
    by_queue_pair_.erase(id);
  }
}

void FlowTable::begin_housekeeping() {
  for (const FlowId id : ids_) {
    flows_[id].active = false;
    flows_[id].stall = {};
  }
}

void FlowTable::do_housekeeping(Instant now) {
  housekeeping_due_ = false;
  for (size_t i = ids_.size(); i-- > 0;) {  // backwards: a flow that ends leaves the list
    if (do_housekeeping(flows_[ids_[i]], now)) housekeeping_due_ = true;
  }
}

// One report for all connections of a flow: there may be a thousand.
void FlowTable::report_stall(MessageFlow& flow) {
  const Stall& stall = flow.stall;
  const bool over = stall.connections == 0;
  const bool known = flow.reported.connections > 0;
  if (known ? !over && flow.reported.expected() <= stall.expected() : over) return;
  stalls_.push_back({flow.sending, over, over ? flow.reported : stall});
  flow.reported = stall;
  ++stall_reports_;
}

// True: it must be called again. A flow with pending requests writes its word at least every
// `keep_alive`: if the peer is dead, the write is not acknowledged and the flow breaks.
bool FlowTable::do_housekeeping(MessageFlow& flow, Instant now) {
  if (flow.connections == 0) {  // leaving, or broken since
    if (now >= flow.leave_at || flow.state == FlowState::kBroken) remove(flow, now);
    return true;
  }
  if (flow.state != FlowState::kOpen) return false;
  report_stall(flow);
  const bool quiet = now - flow.last_word >= config_.keep_alive;
  rates_.do_housekeeping(flow, now);
  if (flow.active && quiet) control_.post_word(flow, now);
  return flow.active;
}

}  // namespace pacecar
