#include "transport/softnic/flow_scheduler.h"

#include <utility>

namespace pacecar {
namespace {

// Longer, and congestion control would learn of a slow flow's path too late.
constexpr Duration kSparseInterval = Duration::from_us(150);

}  // namespace

FlowScheduler::FlowScheduler(const SoftNicConfig& config,
                             const std::vector<std::unique_ptr<QueuePair>>& queue_pairs,
                             TimerWheel& timers)
    : mtu_(config.mtu),
      burst_bytes_(config.burst_bytes),
      jitter_(config.jitter),
      sparse_interval_(std::min(config.ack.delay / 2, kSparseInterval)),
      queue_pairs_(queue_pairs),
      timers_(timers),
      first_timer_(static_cast<uint32_t>(queue_pairs.size())),
      flows_(config.flows, FlowGate(config.burst_bytes, config.jitter)),
      controls_(queue_pairs.size()) {}

void FlowScheduler::set_limits(FlowId id, const FlowLimits& limits, Instant now) {
  flows_.make(id + 1);
  Flow& flow = flows_[id];
  flow.gate.set_limits(limits, now);
  // With packets paced one by one, bursts are only for hosts that cannot keep up.
  const Bytes catch_up = flow.gate.burst() * FlowGate::kCatchUpBursts;
  flow.repaid = jitter_ == Duration() || burst_bytes_ > mtu_
                    ? Duration()
                    : std::max(jitter_, limits.rate.time_for(catch_up));
  flow.sparse = limits.rate.time_for(mtu_) > sparse_interval_;
  make_ready(id);
}

void FlowScheduler::leave(const QueuePair& qp) {
  controls_.remove(qp.slot);
  if (!qp.config.paced) return;
  if (qp.end != nullptr) flows_[qp.config.flow].gate.on_done(qp.end->in_flight());
  flows_.leave(qp.config.flow, qp.slot);
  flows_.ready().add(qp.config.flow);  // the others have more window now
}

void FlowScheduler::wake(QueuePair& qp) {
  if (qp.config.paced) {  // another queue pair of the flow may have waited for the window
    // A flow without work is not made ready, so that the NIC's next deadline is not "at once".
    if (has_work(flows_[qp.config.flow])) make_ready(qp.config.flow);
  } else if (qp.has_work()) {
    controls_.add(qp.slot);
  }
}

bool FlowScheduler::has_work(const Flow& flow) const {
  return std::ranges::any_of(flow.slots,
                             [&](uint32_t slot) { return queue_pairs_[slot]->has_work(); });
}

size_t FlowScheduler::transmit_flow(Instant now, std::span<TxPacket> out) {
  const FlowId id = flows_.ready().take();
  Flow& flow = flows_[id];
  const size_t pairs = flow.slots.size();
  const bool waited = std::exchange(flow.waiting, false);
  for (size_t i = 0; i < pairs; ++i) {
    const QueuePair& qp = *queue_pairs_[flow.slots[(flow.turn + i) % pairs]];
    if (!qp.connected()) continue;
    const size_t count = qp.end->take_turn(now, waited, out);
    if (count == 0) continue;  // or its lost packets have been acknowledged after all
    flow.turn = (flow.turn + i + 1) % pairs;
    if (waited && !has_work(flow)) flows_.report(id);
    flow.waiting = true;
    make_ready(id);
    return count;
  }
  return 0;
}

size_t FlowScheduler::transmit_control(Instant now, std::span<TxPacket> out) {
  size_t count = 0;
  for (size_t left = controls_.size(); left > 0 && count < out.size(); --left) {
    if (controls_.empty()) break;  // the control write has joined another packet
    QueuePair& qp = *queue_pairs_[controls_.take()];
    const bool sends = qp.connected() || qp.state == QueuePair::State::kOpen;
    if (sends) count += qp.end->transmit_control(now, out.subspan(count));
  }
  return count;
}

// Whether the flow, on credit, can send now. A flow on credit is ready only while it can send,
// because it counts in FlowSignal::sharing; other flows are checked in their turn.
bool FlowScheduler::can_send_on_credit(const Flow& flow) const {
  return std::ranges::any_of(flow.slots, [&](uint32_t slot) {
    const QueuePair& qp = *queue_pairs_[slot];
    return qp.has_work() && (room(flow.gate, qp.end->next_bytes()) > 0 || qp.end->probing());
  });
}

void FlowScheduler::on_progress(const QueuePair& qp, Bytes done, const SendProgress& progress) {
  if (!qp.config.paced) return;
  Flow& flow = flows_[qp.config.flow];
  flow.gate.on_done(done);
  FlowSignal& signal = flow.signal;
  if (progress.rtt.ns() != 0) signal.rtt = progress.rtt;
  signal.rerouting |= progress.rerouting;
  signal.acked += progress.acked;
  signal.marked += progress.marked;
  signal.lost += progress.lost;
  signal.trimmed += progress.trimmed;
  signal.dropped += progress.dropped;
  if (progress.trimmed_rtt.ns() != 0) signal.trimmed_rtt = progress.trimmed_rtt;
  signal.timed_out |= progress.timed_out;
  flows_.report(qp.config.flow);
}

}  // namespace pacecar
