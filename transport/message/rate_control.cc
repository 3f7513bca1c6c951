#include "transport/message/rate_control.h"

#include <algorithm>
#include <span>
#include <utility>

#include "cc/grant_word.h"
#include "cc/registry.h"
#include "transport/base/return_if_error.h"
#include "transport/message/feedback.h"

namespace pacecar {
namespace {

// Duration of one write at the flow's rate, where the NIC paces whole writes: few writes at high
// rates, and short waits for other flows at low ones.
constexpr Duration kWriteTime = Duration::from_ms(1);

FlowEnvironment environment(const NicQueuePairs& nic, const MessengerConfig& config) {
  return {.line_rate = config.line_rate,
          .mtu = nic.caps().mtu,
          .overhead = nic.caps().packet_overhead,
          .burst_bytes = nic.caps().burst_bytes,
          .base_rtt = config.base_rtt,
          .trimming = config.trimming,
          .oversubscription = config.oversubscription,
          .jitter = nic.caps().jitter,
          .pause = nic.caps().pause,
          .receivers_time_arrivals = nic.caps().times_arrivals,
          .first_rate = config.first_rate,
          .grid_origin = config.grid_origin};
}

}  // namespace

Result<CongestionControl> RateControl::make(const NicQueuePairs& nic,
                                            const MessengerConfig& config) {
  FlowEnvironment flow = environment(nic, config);
  flow.host_link = config.outgoing;
  ASSIGN_OR_RETURN(auto controllers,
                   make_controllers(config.congestion_control, flow, config.rate_max,
                                    config.constants, nic.caps().flows));
  flow.host_link = config.incoming;
  const std::string_view own = controller_info(config.congestion_control)->allocator;
  const std::string_view name = config.allocator.empty() ? own : config.allocator;
  const auto constants =
      std::span(config.constants).first(name == own ? config.constants.size() : 0);
  ASSIGN_OR_RETURN(auto allocator, make_allocator(name, flow, nic.caps().flows, constants));
  return CongestionControl{std::move(controllers), std::move(allocator), allocator_name(own),
                           allocator_name(name)};
}

RateControl::RateControl(NicQueuePairs& nic, const MessengerConfig& config, ControlWrites& control,
                         CongestionControl congestion_control)
    : nic_(nic),
      config_(config),
      control_(control),
      congestion_(std::move(congestion_control)),
      undecided_(nic.caps().flows) {
  nic_.report_arrivals(congestion_.allocator->wants_arrivals());
}

void RateControl::add_flow(MessageFlow& flow, Instant now) {
  if (!flow.sending) {
    if (flow.obeys) congestion_.allocator->add_flow(now, flow.id);
    return;
  }
  flow.controller = &congestion_.controllers->add_flow(now, flow.id);
  congestion_.controllers->set_weight(now, flow.id, flow.weight);
  decide(flow, now);
}

void RateControl::remove_flow(MessageFlow& flow, Instant now) {
  if (flow.state == FlowState::kJoining) return;
  if (flow.obeys) congestion_.allocator->remove_flow(now, flow.id);
  if (flow.controller != nullptr) congestion_.controllers->remove_flow(now, flow.id);
}

void RateControl::set_weight(MessageFlow& flow, uint32_t weight, Instant now) {
  if (weight == flow.weight) return;
  flow.weight = weight;
  if (flow.controller != nullptr) congestion_.controllers->set_weight(now, flow.id, weight);
  if (flow.obeys) congestion_.allocator->set_weight(now, flow.id, weight);
}

void RateControl::hint(const TrafficHint& hint, Instant now) {
  hint_ = hint;
  if (hint_.peers > nic_.caps().flows) hint_.peers = 0;
  congestion_.allocator->on_hint(now, hint_);
}

void RateControl::on_word(MessageFlow& flow, uint64_t word, Instant now) {
  if (flow.sending) {
    on_grant(flow, word, now);
  } else if (flow.obeys) {
    congestion_.allocator->on_demand(now, flow.id, wire::decode_demand(word));
  }
}

void RateControl::on_grant(MessageFlow& flow, uint64_t word, Instant now) {
  flow.controller->on_grant(now, wire::decode_grant(word));
  decide_later(flow, true);
}

void RateControl::on_writes_posted(MessageFlow& flow, uint32_t writes, Bytes bytes) {
  const bool begins = flow.stats.backlog == 0;
  flow.writes += writes;
  flow.stats.backlog += bytes;
  decide_later(flow, begins);  // it may have been idle
}

void RateControl::on_write_done(MessageFlow& flow) {
  // Withdrawn writes are never acknowledged: without writes at the NIC the backlog is 0.
  if (--flow.writes > 0) return;
  flow.stats.backlog = 0;
  decide_later(flow, false);
}

void RateControl::poll_signals(const Places<MessageFlow>& flows, Instant now) {
  size_t count = 0;
  do {
    count = nic_.poll_signals(signals_);
    for (const FlowSignal& signal : std::span(signals_).first(count)) {
      MessageFlow* flow = flows.find(signal.flow);
      if (flow == nullptr || flow->controller == nullptr) continue;
      on_signal(*flow, signal, now);
    }
  } while (count == signals_.size());
}

void RateControl::poll_arrivals(const Places<MessageFlow>& flows, Instant now) {
  size_t count = 0;
  do {
    count = nic_.poll_arrivals(arrivals_);
    for (const FlowArrival& arrival : std::span(arrivals_).first(count)) {
      const MessageFlow* flow = flows.find(arrival.flow);
      if (flow == nullptr || flow->sending) continue;
      if (flow->obeys) {
        congestion_.allocator->on_arrival(now, arrival.flow, arrival.bytes,
                                          {arrival.transit_ns, arrival.timed_bytes});
      } else {
        congestion_.allocator->on_foreign_arrival(now, arrival.bytes);
      }
    }
  } while (count == arrivals_.size());
}

void RateControl::on_signal(MessageFlow& flow, const FlowSignal& signal, Instant now) {
  flow.stats.window_full = signal.in_flight + signal.acked + nic_.caps().mtu > flow.limits.window;
  take_signal(*flow.controller, flow.stats, signal, now);
  if (signal.path_mtu != flow.path_mtu) {
    flow.path_mtu = signal.path_mtu;
    changed_paths_.push_back(flow);
    ++path_changes_;
  }
  if (signal.rtt.ns() != 0) {
    flow.rtt = signal.rtt;
    if (config_.base_rtt == Duration() && signal.rtt < least_rtt_) {
      least_rtt_ = signal.rtt;
      congestion_.allocator->on_round_trip(least_rtt_);
    }
  }
  last_flow_ = flow.id;
  decide_later(flow, true);
}

// One flow's change may change others' limits. After two rounds the rest waits for the next poll,
// unless a round has filled `changed_`.
void RateControl::poll_changed(const Places<MessageFlow>& flows, Instant now) {
  size_t count = changed_.size();
  for (int round = 0; count == changed_.size() || (round < 2 && count > 0); ++round) {
    count = congestion_.controllers->poll_changed(now, changed_);
    for (const uint32_t id : std::span(changed_).first(count)) {
      announce(flows[id], now);
      decide(flows[id], now);
    }
  }
}

// Control writes are the ones without immediate: they are not counted as data.
void RateControl::report_counts(Instant now) {
  const NicCounters& counters = nic_.counters();
  congestion_.allocator->on_counts(
      now, {.packets = counters.data_packets_received - counters.silent_packets_received,
            .marked = counters.marked_packets,
            .trimmed = counters.trimmed_packets,
            .trimmed_in_core = counters.trimmed_in_core});
}

void RateControl::poll_grants(Instant now) {
  if (config_.oversubscription > 1) report_counts(now);
  size_t count = 0;
  do {
    count = congestion_.allocator->poll_grants(now, grants_);
    for (const GrantUpdate& update : std::span(grants_).first(count)) {
      control_.queue(update.flow, wire::encode_grant(update.grant));
    }
  } while (count == grants_.size());
}

void RateControl::decide(MessageFlow& flow, Instant now) {
  apply_limits(nic_, flow.id, *flow.controller, flow.limits, now);
}

void RateControl::announce(const MessageFlow& flow, Instant now) {
  if (flow.controller == nullptr) return;
  const auto demand = flow.controller->demand(now, flow.stats);
  if (demand) control_.queue(flow.id, wire::encode_demand(*demand));
}

void RateControl::decide_later(MessageFlow& flow, bool decides) {
  flow.undecided |= decides;
  undecided_.add(flow.id);
}

void RateControl::decide_pending(const Places<MessageFlow>& flows, Instant now) {
  while (!undecided_.empty()) {
    MessageFlow* flow = flows.find(undecided_.take());
    if (flow == nullptr) continue;
    announce(*flow, now);
    if (std::exchange(flow->undecided, false) && flow->stats.backlog > 0) decide(*flow, now);
  }
}

void RateControl::do_housekeeping(MessageFlow& flow, Instant now) {
  if (!flow.sending) return;
  announce(flow, now);
  decide(flow, now);
  flow.meter.sample(now, flow.controller->explain(now), flow.stats);
}

uint64_t RateControl::grant_word(MessageFlow& flow) const {
  if (flow.obeys) return wire::encode_grant(congestion_.allocator->grant(flow.id));
  // A new epoch each time: a sender under `pace` takes a grant without one only once.
  return wire::encode_grant(
      {.rate = config_.line_rate, .validity = Duration::from_s(10), .epoch = ++flow.epoch});
}

Bytes RateControl::write_bytes(const MessageFlow& flow) const {
  const NicCaps& caps = nic_.caps();
  if (caps.paces_packets) return caps.write_bytes;
  const Bytes bytes = flow.limits.rate.bytes_in(kWriteTime) / caps.mtu * caps.mtu;
  return std::clamp(bytes, caps.mtu, caps.write_bytes);
}

Explanation RateControl::explain(const MessageFlow& flow, Instant now) const {
  if (flow.obeys) return {.grant = congestion_.allocator->grant(flow.id).rate};
  if (flow.controller == nullptr) return {.limited_by = LimitedBy::kApplication};
  Explanation explanation = flow.controller->explain(now);
  explanation.rate_max = config_.rate_max;
  explanation.limited_by = flow.meter.limit(explanation, flow.stats);
  return explanation;
}

Instant RateControl::next_deadline() const {
  return std::min(congestion_.allocator->next_deadline(), congestion_.controllers->next_deadline());
}

}  // namespace pacecar
