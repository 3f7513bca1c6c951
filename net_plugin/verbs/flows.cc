#include "net_plugin/verbs/flows.h"

#include <algorithm>

#include "cc/registry.h"
#include "transport/base/return_if_error.h"
#include "transport/message/feedback.h"

namespace pacecar::ibverbs {

Result<std::unique_ptr<Flows>> Flows::make(const Params& params, NicQueuePairs& nic,
                                           Rate first_rate, HostLink* link) {
  ASSIGN_OR_RETURN(const auto info, controller_info(params.cc));
  if (info.allocator == "credit" || info.allocator == "sird") {
    return fail(ErrorCode::kInvalidArgument,
                "PACECAR_CC=" + params.cc +
                    " needs credit of the receiver, which programs of verbs do not exchange: use "
                    "pace, swift or dcqcn");
  }
  const NicCaps& caps = nic.caps();
  const FlowEnvironment environment{.line_rate = caps.line_rate,
                                    .mtu = caps.mtu,
                                    .overhead = caps.packet_overhead,
                                    .burst_bytes = caps.burst_bytes,
                                    .jitter = caps.jitter,
                                    .pause = caps.pause,
                                    .first_rate = first_rate,
                                    .host_link = link};
  ASSIGN_OR_RETURN(auto controllers,
                   make_controllers(params.cc, environment, params.rate_max, {}, caps.flows));
  return std::unique_ptr<Flows>(new Flows(nic, std::move(controllers)));
}

Flows::Flows(NicQueuePairs& nic, std::unique_ptr<ControllerSet> controllers)
    : nic_(nic), controllers_(std::move(controllers)), changed_(nic.caps().flows) {}

Result<FlowId> Flows::join(const std::array<uint8_t, 16>& peer, Instant now) {
  const auto known = std::ranges::find_if(
      flows_, [&](const Flow& flow) { return flow.users > 0 && flow.peer == peer; });
  if (known != flows_.end()) {
    ++known->users;
    return static_cast<FlowId>(known - flows_.begin());
  }
  const auto unused = std::ranges::find(flows_, 0U, &Flow::users);
  const auto id = static_cast<FlowId>(unused - flows_.begin());
  if (id == nic_.caps().flows) {
    return fail(ErrorCode::kUnavailable, "all flows of the NIC are used: raise PACECAR_MAX_FLOWS");
  }
  if (unused == flows_.end()) flows_.emplace_back();
  Flow& flow = flows_[id];
  flow = Flow{.peer = peer, .users = 1, .controller = &controllers_->add_flow(now, id)};
  apply_limits(nic_, id, *flow.controller, flow.limits, now);
  return id;
}

void Flows::leave(FlowId id, Instant now) {
  Flow& flow = flows_[id];
  if (--flow.users > 0) return;
  changed_.remove(id);
  controllers_->remove_flow(now, id);
  flow = Flow{};
}

void Flows::on_posted(FlowId id, Bytes bytes) {
  flows_[id].stats.backlog += bytes;
  changed_.add(id);
}

void Flows::poll(Instant now) {
  std::array<FlowSignal, 16> signals;
  size_t count = 0;
  do {
    count = nic_.poll_signals(signals);
    for (const FlowSignal& signal : std::span(signals).first(count)) {
      if (signal.flow >= flows_.size() || flows_[signal.flow].users == 0) continue;
      Flow& flow = flows_[signal.flow];
      take_signal(*flow.controller, flow.stats, signal, now);
      changed_.add(signal.flow);
    }
  } while (count == signals.size());
  while (!changed_.empty()) update(changed_.take(), now);
  // A change of one flow may change others' limits. After two rounds the rest can wait.
  std::array<uint32_t, 16> changed;
  count = changed.size();
  for (int round = 0; count == changed.size() || (round < 2 && count > 0); ++round) {
    count = controllers_->poll_changed(now, changed);
    for (const uint32_t id : std::span(changed).first(count)) update(id, now);
  }
}

void Flows::update(FlowId id, Instant now) {
  if (id >= flows_.size() || flows_[id].users == 0) return;
  Flow& flow = flows_[id];
  (void)flow.controller->demand(now, flow.stats);  // gives the controller the flow's statistics
  apply_limits(nic_, id, *flow.controller, flow.limits, now);
}

}  // namespace pacecar::ibverbs
