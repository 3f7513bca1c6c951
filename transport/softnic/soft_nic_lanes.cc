// The part of SoftNic that recovers failed connections of standard RC (transport/nic/lanes).
//
// No message is lost or delivered twice: each end counts the writes with immediate that it
// receives, and a failed end receives nothing more under its old queue pair number. A request is
// sent again only when the peer has reported that its end is replaced, too, and how many writes
// have arrived.
#include <utility>

#include "transport/base/seq.h"
#include "transport/softnic/soft_nic.h"

namespace pacecar {
namespace {

// Most connections in a row that may end by our refusal without progress of our own requests: more
// than the peer has work requests that we might refuse.
constexpr uint32_t kMostFutile = 1024;

}  // namespace

Bytes SoftNic::standard_state(const QueuePairConfig& config) {
  const auto connection = [](uint32_t work_requests, uint32_t receives) {
    return sizeof(QueuePair) + sizeof(RcConnection) +
           RcRequester::work_request_bytes(work_requests) + receives * sizeof(ReceiveRequest);
  };
  constexpr uint32_t kMessages = StandbyMessages::kMessages;
  return connection(config.work_requests, config.receives) +
         (config.receives == 0 ? connection(kMessages, kMessages) + sizeof(StandbyMessages) : 0);
}

// --- the standby lane ---

QueuePair* SoftNic::standby_of(const QueuePair& qp) const {
  return qp.standby ? queue_pairs_[slot_of(qp) + caps_.queue_pairs].get() : nullptr;
}

QueuePair& SoftNic::owner_of(const QueuePair& standby) const {
  return *queue_pairs_[slot_of(standby) - caps_.queue_pairs];
}

void SoftNic::make_standby(const QueuePair& qp, const PeerEndpoint& peer) {
  if (!qp.standby || !peer.standby) return;
  auto messages = std::make_unique<StandbyMessages>(standby_rooms_[slot_of(qp)], standby_key_);
  auto standby = std::make_unique<QueuePair>();
  standby->id = qp.standby->queue_pair;
  standby->config = {.flow = qp.config.flow,
                     .traffic_class = TrafficClass::kControl,
                     .paced = false,
                     .work_requests = StandbyMessages::kMessages,
                     .receives = StandbyMessages::kMessages};
  standby->local = qp.local;
  standby->local.queue_pair = qp.standby->queue_pair;
  standby->local.first_psn = qp.standby->first_psn;
  standby->local.window_packets = window(standby->config);
  standby->receives = FixedQueue<ReceiveRequest>(StandbyMessages::kMessages);
  for (uint64_t i = 0; i < StandbyMessages::kMessages; ++i) {
    standby->receives.push(messages->receive(i));
  }
  standby->messages = std::move(messages);
  open_lane(*standby, peer.standard, *peer.standby);
  const uint32_t slot = slot_of(*standby);
  queue_pairs_[slot] = std::move(standby);
}

void SoftNic::drop_standby(const QueuePair& qp) {
  QueuePair* standby = standby_of(qp);
  if (standby == nullptr) return;
  const uint32_t slot = slot_of(*standby);
  for (WorkList* list : {&acks_, &later_, &controls_}) list->remove(slot);
  timers_.cancel(slot);
  queue_pairs_[slot].reset();
}

void SoftNic::on_standby_sent(QueuePair& standby, Instant now) {
  WorkRequest request;
  CompletionStatus status;
  while (standby.pop_completed(&request, &status)) {
  }
  advance_lane(owner_of(standby), now);
}

void SoftNic::on_standby_message(QueuePair& standby, const Completion& completion, Instant now) {
  QueuePair& qp = owner_of(standby);
  const auto message = standby.messages->take(completion);
  standby.receives.push(standby.messages->receive(completion.work_request));
  LaneRecovery& recovery = qp.rc->recovery;
  if (!message || message->lane != 0 || !recovery.on_message(*message)) {
    return break_queue_pair(
        qp, CompletionStatus::kLocalError,
        "sent an impossible state of a connection: run the same version of Pacecar on both sides");
  }
  if (recovery.up() && recovery.offered()) fail_lane(qp, CompletionStatus::kLocalError, now);
  advance_lane(qp, now);
}

// --- a connection that has failed ---

void SoftNic::break_queue_pair(QueuePair& qp, CompletionStatus status, const char* fault) {
  if (qp.state == QueuePair::State::kBroken) return;
  qp.state = QueuePair::State::kBroken;
  qp.broken_by = status;
  qp.fault = fault;
  if (qp.rc) {
    const Bytes in_flight = qp.rc->requester.in_flight();
    qp.rc->requester.stop(status);
    on_progress(qp, in_flight, {});  // other queue pairs of its flow have more window now
    wake_readers();
    qp.rc->requester.abandon();
    wake(qp);
  }
  if (is_standby(qp)) {  // this matters only while the owner's connection is being recovered
    QueuePair& owner = owner_of(qp);
    if (!owner.rc->recovery.up()) break_queue_pair(owner, owner.rc->failed_by);
    return;
  }
  if (QueuePair* standby = standby_of(qp)) standby->state = QueuePair::State::kBroken;
  events_.add(slot_of(qp));
}

// Refusals end connections, so two ends that refuse each other at the same time do not receive each
// other's refusals: both would send the same requests over each next connection, forever.
bool SoftNic::is_futile(RcConnection& rc) {
  const uint64_t before = std::exchange(rc.finished, rc.requester.finished());
  const bool moved = rc.finished != before || rc.responder.writes_received() > 0;
  if (moved || !rc.responder.refused()) rc.futile = 0;
  return rc.responder.refused() && rc.futile++ == kMostFutile;
}

void SoftNic::fail_lane(QueuePair& qp, CompletionStatus status, Instant now) {
  RcConnection& rc = *qp.rc;
  if (qp.state != QueuePair::State::kConnected) return;
  if (rc.recovery.state() == LaneRecovery::State::kFailed) return;
  const QueuePair* standby = standby_of(qp);
  const bool again = rc.recovery.may_fail_again();
  const bool comes_back = standby != nullptr && standby->state == QueuePair::State::kConnected;
  if (!comes_back || !(rc.recovery.up() || again)) return break_queue_pair(qp, status);
  if (is_futile(rc)) {
    return break_queue_pair(qp, status,
                            "and this end refuse each other's writes again and again: check the "
                            "keys and remote addresses that both were given");
  }
  rc.open = false;
  rc.failed_by = status;
  const Bytes in_flight = rc.requester.in_flight();
  rc.requester.stop(status);
  on_progress(qp, in_flight, {});
  wake_readers();
  events_.add(slot_of(qp));
  if (again) return rc.recovery.on_failed_again();
  rc.recovery.on_failed(now + config_.silence_limit);
  arm_timeout(qp);
  advance_lane(qp, now);
}

void SoftNic::upset_lanes(Instant now) {
  for (const auto& qp : queue_pairs_) {
    if (qp == nullptr || !qp->rc || is_standby(*qp) || !qp->rc->open) continue;
    fail_lane(*qp, CompletionStatus::kLocalError, now);
  }
}

void SoftNic::on_lane_timeout(QueuePair& qp, Instant now) {
  if (now < qp.rc->recovery.deadline()) return arm_timeout(qp);
  break_queue_pair(qp, qp.rc->failed_by,
                   "has not joined another connection within the limit after one had failed: check "
                   "that it runs, and look at its log");
}

// Takes all steps of recovery that are possible now.
void SoftNic::advance_lane(QueuePair& qp, Instant now) {
  while (qp.state == QueuePair::State::kConnected && !qp.rc->recovery.up()) {
    const LaneRecovery::Step step = qp.rc->recovery.next(true);
    if (step == LaneRecovery::Step::kWait || !take_step(qp, step, now)) return;
  }
}

// False: the step is not possible yet.
bool SoftNic::take_step(QueuePair& qp, LaneRecovery::Step step, Instant now) {
  switch (step) {
    case LaneRecovery::Step::kReplace:
      return replace_lane(qp);
    case LaneRecovery::Step::kSendOffer:
      return send_to_peer(qp, RecoveryMessage::Kind::kOffer);
    case LaneRecovery::Step::kJoin:
      return join_lane(qp);
    case LaneRecovery::Step::kSendReady:
      return send_to_peer(qp, RecoveryMessage::Kind::kReady);
    case LaneRecovery::Step::kUse:
      use_lane(qp, now);
      return true;
    case LaneRecovery::Step::kWait:
      break;
  }
  return false;
}

bool SoftNic::replace_lane(QueuePair& qp) {
  const RcResponder& responder = qp.rc->responder;
  if (responder.refused() && responder.answer_due()) return false;  // the NAK must be sent first
  qp.local.queue_pair = next_number(slot_of(qp));
  qp.local.first_psn = random_() & static_cast<uint32_t>(kPsnMask);
  acks_.remove(slot_of(qp));
  later_.remove(slot_of(qp));
  qp.rc->notification_due = false;
  qp.rc->recovery.on_replaced();
  return true;
}

bool SoftNic::send_to_peer(QueuePair& qp, RecoveryMessage::Kind kind) {
  RecoveryMessage message{.kind = kind, .generation = qp.rc->recovery.generation()};
  if (kind == RecoveryMessage::Kind::kOffer) {
    message.end = {.queue_pair = qp.local.queue_pair, .first_psn = qp.local.first_psn};
    message.received = qp.rc->responder.writes_received();
  }
  QueuePair& standby = *standby_of(qp);
  if (!standby.messages->send(message, standby.rc->requester)) return false;
  qp.rc->recovery.on_sent();
  wake(standby);
  return true;
}

bool SoftNic::join_lane(QueuePair& qp) {
  RcConnection& rc = *qp.rc;
  const RecoveryMessage& offer = rc.recovery.offer();
  const auto arrived =
      rc.requester.restart(offer.end.queue_pair, wide_psn(qp.local.first_psn), offer.received);
  if (!arrived) {
    break_queue_pair(qp, CompletionStatus::kLocalError,
                     "reports an impossible number of received writes: please report it with the "
                     "versions of both sides");
    return false;
  }
  rc.responder.restart(offer.end.queue_pair, wide_psn(offer.end.first_psn));
  qp.remote.queue_pair = offer.end.queue_pair;
  qp.remote.first_psn = offer.end.first_psn;
  on_progress(qp, 0, {.acked = *arrived});
  events_.add(slot_of(qp));
  rc.open = true;
  rc.recovery.on_joined();
  return true;
}

void SoftNic::use_lane(QueuePair& qp, Instant now) {
  if (qp.rc->recovery.on_used()) {  // it has failed again meanwhile
    qp.rc->recovery.on_failed(now + config_.silence_limit);
  } else {
    wake(qp);
  }
  arm_timeout(qp);
}

}  // namespace pacecar
