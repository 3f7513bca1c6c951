// The part of VerbsNic that sends posted work requests, as the limits of their flows allow.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/base/check.h"
#include "transport/verbs/verbs_nic.h"

namespace pacecar {
namespace {

// Work requests per call, so that completions are polled in between.
constexpr size_t kMaxTransmit = 64;
constexpr Duration kEventPeriod = Duration::from_ms(5);

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

void VerbsNic::on_time(Instant now) {
  now_ = now;
  flows_.on_time(now);
  watch_lanes(now);
  recover(now);
  apply_rate_limits(now);
  if (now < next_event_poll_) return;
  next_event_poll_ = now + kEventPeriod;
  poll_events();
  if (completions_.distrusts_stamps() && !std::exchange(distrust_reported_, true)) {
    config_.log(LogLevel::kWarn,
                fmt::format("the time stamps of {} make no sense: its round trips are measured by "
                            "our clock; PACECAR_VERBS_WITHOUT=time_stamps leaves them out",
                            device_.name));
  }
}

Instant VerbsNic::next_deadline() const {
  const bool all_polled = completed_.empty() && received_.empty();
  if (!all_polled || !controls_.empty()) return Instant();
  Instant next = flows_.next_deadline();
  if (started_ > 0) next = std::min(next, next_watch_);
  return recovering_.empty() ? next : std::min(next, next_recovery_);
}

void VerbsNic::wake(const QueuePair& qp) {
  if (qp.config.paced) {  // another of the flow's queue pairs may have waited for the window
    flows_.wake(qp.config.flow);
  } else if (qp.can_start()) {
    controls_.add(slot_of(qp.id));
  }
}

const WorkRequest* VerbsNic::waiting(uint32_t slot) const {
  const QueuePair& qp = *queue_pairs_[slot];
  return qp.can_start() ? qp.work.waiting() : nullptr;
}

size_t VerbsNic::transmit(Instant now) {
  now_ = now;
  size_t count = 0;
  for (size_t left = controls_.size(); left > 0 && count < kMaxTransmit; --left) {
    count += transmit_control(*queue_pairs_[controls_.take()], now);
  }
  while (count < kMaxTransmit) {
    const auto turn = flows_.next_turn(now);
    if (!turn) break;
    count += transmit_turn(*turn, now);
  }
  return count;
}

size_t VerbsNic::transmit_control(QueuePair& qp, Instant now) {
  PostBatch batch(qp);
  while (!batch.full() && qp.can_start()) start(qp, batch, now);
  wake(qp);
  return post_batch(qp, batch);
}

size_t VerbsNic::transmit_turn(PacedFlows::Turn turn, Instant now) {
  QueuePair& qp = *queue_pairs_[turn.slot];
  PostBatch batch(qp);
  while (!batch.full() && qp.can_start()) {
    const Bytes bytes = qp.work.waiting()->length;
    if (!flows_.takes(turn, bytes)) break;
    flows_.on_sent(turn, bytes, wire_bytes(bytes), now);
    start(qp, batch, now);
  }
  flows_.end_turn(turn);
  return post_batch(qp, batch);
}

void VerbsNic::start(QueuePair& qp, PostBatch& batch, Instant now) {
  const WorkRequest& request = *qp.work.waiting();
  const Bytes on_wire = wire_bytes(request.length);
  count_sent(request.length);
  ++qp.started;
  ++started_;
  batch.add(request, qp.work.start(), now, depart(on_wire, now), on_wire);
}

size_t VerbsNic::post_batch(QueuePair& qp, PostBatch& batch) {
  if (const int error = batch.post(); error != 0) {
    break_queue_pair(qp, CompletionStatus::kLocalError,
                     verbs_error(Call::kOther, "ibv_post_send", error, device_.name).message);
  }
  return batch.size();
}

Bytes VerbsNic::wire_bytes(Bytes payload) const {
  return payload + packets_of(payload) * caps_.packet_overhead;
}

}  // namespace pacecar
