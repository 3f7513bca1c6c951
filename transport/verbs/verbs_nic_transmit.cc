// The part of VerbsNic that lets out what is posted, as the limits of its flows allow.
#include <fmt/format.h>

#include <algorithm>

#include "transport/base/check.h"
#include "transport/verbs/verbs_nic.h"

namespace pacecar {
namespace {

// Work requests per call, so that completions are looked at in between.
constexpr size_t kMaxTransmit = 64;
constexpr Duration kLookAtEvents = Duration::from_ms(5);

}  // namespace

size_t VerbsNic::post(QueuePairId id, std::span<const WorkRequest> work_requests) {
  QueuePair* qp = find(id);
  PACECAR_CHECK(qp != nullptr && qp->state != QueuePair::State::kCreated);
  if (qp->state == QueuePair::State::kBroken) return 0;
  for (const WorkRequest& request : work_requests) {
    PACECAR_CHECK(request.length <= device_.port_attributes.max_msg_sz);
    PACECAR_CHECK(!qp->config.paced || request.opcode == Opcode::kWrite ||
                  request.opcode == Opcode::kWriteWithImm);
  }
  const size_t accepted = qp->work.post(work_requests);
  wake(*qp);
  return accepted;
}

size_t VerbsNic::post_receives(QueuePairId id, std::span<const ReceiveRequest> requests) {
  QueuePair* qp = find(id);
  PACECAR_CHECK(qp != nullptr);
  size_t count = 0;
  while (count < requests.size() && !qp->receives.full() &&
         qp->state != QueuePair::State::kBroken) {
    const ReceiveRequest& request = requests[count];
    ibv_sge piece{.addr = reinterpret_cast<uint64_t>(request.local),
                  .length = static_cast<uint32_t>(request.length),
                  .lkey = request.local_key};
    ibv_recv_wr receive{.wr_id = VerbsWorkId{.queue_pair = id, .receive = true}.pack(),
                        .next = nullptr,
                        .sg_list = &piece,
                        .num_sge = request.length > 0 ? 1 : 0};
    ibv_recv_wr* refused = nullptr;
    const int error = ibv_post_recv(qp->lanes.front().queue_pair.get(), &receive, &refused);
    if (error != 0) {
      break_queue_pair(*qp, CompletionStatus::kLocalError,
                       verbs_error(Call::kOther, "ibv_post_recv", error, device_.name).message);
      break;
    }
    qp->receives.push(request.id);
    ++count;
  }
  return count;
}

void VerbsNic::set_flow_limits(FlowId index, const FlowLimits& limits, Instant now) {
  flows_[index].gate.set_limits(limits, now);
  make_ready(index);
}

void VerbsNic::on_time(Instant now) {
  now_ = now;
  std::array<uint32_t, 64> due;
  size_t count = 0;
  do {
    count = timers_.expire(now, due);
    for (const uint32_t flow : std::span(due).first(count)) make_ready(flow);
  } while (count == due.size());
  watch_lanes(now);
  recover(now);
  if (now < next_look_at_events_) return;
  next_look_at_events_ = now + kLookAtEvents;
  look_at_events();
}

Instant VerbsNic::next_deadline() const {
  const bool told = completed_.empty() && received_.empty();
  if (!told || !controls_.empty() || !ready_.empty()) return Instant();
  Instant next = timers_.next_deadline();
  if (started_ > 0) next = std::min(next, next_watch_);
  return recovering_.empty() ? next : std::min(next, next_recovery_);
}

void VerbsNic::wake(const QueuePair& qp) {
  if (qp.config.paced) {  // another of the flow's queue pairs may have waited for the window
    make_ready(qp.config.flow);
  } else if (qp.can_start()) {
    controls_.add(slot_of(qp));
  }
}

// On credit a flow counts for the others, so only while it can send.
void VerbsNic::make_ready(uint32_t index) {
  const Flow& flow = flows_[index];
  const auto can_send = [&](uint32_t slot) {
    const QueuePair& qp = *queue_pairs_[slot];
    return qp.can_start() && flow.gate.has_room(qp.work.waiting()->length);
  };
  if (!flow.gate.on_credit() || std::ranges::any_of(flow.queue_pairs, can_send)) ready_.add(index);
}

size_t VerbsNic::transmit(Instant now) {
  now_ = now;
  size_t count = 0;
  for (size_t left = controls_.size(); left > 0 && count < kMaxTransmit; --left) {
    count += transmit_control(*queue_pairs_[controls_.take()], now);
  }
  while (count < kMaxTransmit && !ready_.empty()) count += transmit_flow(ready_.take(), now);
  return count;
}

size_t VerbsNic::transmit_control(QueuePair& qp, Instant now) {
  PostBatch batch(qp);
  while (!batch.full() && qp.can_start()) start(qp, batch, now);
  wake(qp);
  return post_batch(qp, batch);
}

// One turn: what may leave at once of the next queue pair that may send.
size_t VerbsNic::transmit_flow(uint32_t index, Instant now) {
  Flow& flow = flows_[index];
  const size_t pairs = flow.queue_pairs.size();
  for (size_t i = 0; i < pairs; ++i) {
    QueuePair& qp = *queue_pairs_[flow.queue_pairs[(flow.turn + i) % pairs]];
    // A completion or a new limit wakes it.
    if (!qp.can_start() || !flow.gate.has_room(qp.work.waiting()->length)) continue;
    if (const Instant next_send = flow.gate.next_send(); next_send > now) {
      timers_.arm(index, next_send);
      continue;
    }
    flow.turn = (flow.turn + i + 1) % pairs;
    PostBatch batch(qp);
    Bytes bytes = 0;
    while (!batch.full() && qp.can_start()) {
      const Bytes next = qp.work.waiting()->length;
      const bool fits = batch.size() == 0 || bytes + next <= flow.gate.burst();
      if (!fits || !flow.gate.has_room(next)) break;
      flow.gate.on_sent(next, wire_bytes(next), now);
      start(qp, batch, now);
      bytes += next;
    }
    if (flow.gate.on_credit()) {
      flow.signal.sharing = static_cast<uint32_t>(ready_.size()) + 1;
      signals_.add(index);
    }
    make_ready(index);
    return post_batch(qp, batch);
  }
  return 0;
}

void VerbsNic::start(QueuePair& qp, PostBatch& batch, Instant now) {
  const WorkRequest& request = *qp.work.waiting();
  departures_ = std::max(departures_, now) + caps_.line_rate.time_for(wire_bytes(request.length));
  counters_.data_packets_sent += packets_of(request.length);
  counters_.data_bytes_sent += request.length;
  ++qp.started;
  ++started_;
  batch.add(request, qp.work.start(), departures_);
}

size_t VerbsNic::post_batch(QueuePair& qp, PostBatch& batch) {
  if (const int error = batch.post(); error != 0) {
    break_queue_pair(qp, CompletionStatus::kLocalError,
                     verbs_error(Call::kOther, "ibv_post_send", error, device_.name).message);
  }
  return batch.size();
}

Bytes VerbsNic::packets_of(Bytes payload) const {
  return payload == 0 ? 1 : (payload + caps_.mtu - 1) >> mtu_shift_;
}

Bytes VerbsNic::wire_bytes(Bytes payload) const {
  return payload + packets_of(payload) * caps_.packet_overhead;
}

}  // namespace pacecar
