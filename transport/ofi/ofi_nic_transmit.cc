// The part of OfiNic that sends: posted work requests, as the limits of their flows and the
// provider allow, and messages to the other ends of its queue pairs.
#include <fmt/format.h>
#include <rdma/fi_errno.h>

#include <algorithm>

#include "transport/base/check.h"
#include "transport/ofi/ofi_nic.h"

namespace pacecar {
namespace {

// The time to the first retry if the provider has no room, or is connecting; it doubles up to the
// longest. While the peer does not listen, each try uses up a socket.
constexpr Duration kRetryAfter = Duration::from_us(20);
constexpr Duration kRetryAfterMost = Duration::from_ms(5);

}  // namespace

// The next work request for the provider, if the limits of its flow allow it.
const WorkRequest* OfiNic::waiting(uint32_t slot) const {
  const QueuePair* qp = queue_pairs_[slot].get();
  if (qp == nullptr || !qp->can_start()) return nullptr;
  const WorkRequest* request = qp->work.waiting();
  const bool notifies =
      request->opcode == Opcode::kWriteWithImm && notification_ == OfiNotification::kWithWrite;
  if (notifies && !qp->mailbox.has_room()) return nullptr;
  return qp->regions.usable(request->remote_key) != nullptr ? request : nullptr;
}

// Completes requests that the provider need not see: empty requests, and requests outside of the
// peer's region. Asks for a region that is unknown. Stops at one that the provider can take.
void OfiNic::prepare_waiting(QueuePair& qp) {
  while (qp.can_start()) {
    const WorkRequest request = *qp.work.waiting();
    if (request.length == 0 && request.opcode == Opcode::kWriteWithImm) {
      queue_message(qp, {.kind = OfiMessage::Kind::kNotify, .key = request.immediate},
                    qp.work.start());
      continue;
    }
    if (request.length == 0) {
      finish(qp, qp.work.start(), CompletionStatus::kOk);
      continue;
    }
    if (!qp.regions.known(request.remote_key)) {
      if (qp.asked == request.remote_key) return;
      qp.asked = request.remote_key;
      return queue_message(qp, {.kind = OfiMessage::Kind::kAsk, .key = request.remote_key});
    }
    // When the revocation is complete the region is unknown, and the peer is asked.
    const OfiRemoteRegion* const region = qp.regions.usable(request.remote_key);
    if (region == nullptr || region->covers(request.remote, request.length)) return;
    finish(qp, qp.work.start(), CompletionStatus::kRemoteAccessError);
  }
}

size_t OfiNic::transmit(Instant now) {
  set_time(now);
  const size_t before = transmit_messages();
  const size_t count = before + PacedNic::transmit(now);
  return count + transmit_messages();
}

size_t OfiNic::send(QueuePair& qp, PacedFlows::Turn* turn) {
  const uint8_t endpoint = turn == nullptr ? 0 : endpoints_.next_for_data();
  size_t count = 0;
  while (const WorkRequest* next = waiting(slot_of(qp.id))) {
    // Control writes must be placed in the order of posting.
    const bool in_order = turn != nullptr || domain_.traits().ordered || qp.started == 0;
    if (!in_order || !fits(turn, next->length) || !start(qp, endpoint, turn)) break;
    ++count;
    prepare_waiting(qp);
  }
  return count;
}

bool OfiNic::start(QueuePair& qp, uint8_t endpoint, PacedFlows::Turn* turn) {
  const WorkRequest request = *qp.work.waiting();
  const OfiRemoteRegion& region = *qp.regions.usable(request.remote_key);
  const OfiRegistrations::Region* local = memory_.find(request.local_key);
  PACECAR_CHECK(local != nullptr && request.length <= domain_.traits().max_write);
  PACECAR_CHECK(request.opcode == Opcode::kWrite || request.opcode == Opcode::kWriteWithImm);
  const bool notifies = request.opcode == Opcode::kWriteWithImm;
  const bool behind = notifies && notification_ == OfiNotification::kWithWrite;
  const OfiMessage notice{
      .kind = OfiMessage::Kind::kNotify, .key = request.immediate, .length = request.length};
  OfiOperation* const operation =
      hand_over(qp, OfiOperation::Kind::kWrite, endpoint,
                {.part = {.data = request.local,
                          .length = request.length,
                          .descriptor = local->descriptor(),
                          .place = region.place + (request.remote - region.address),
                          .key = region.provider_key},
                 .behind = {},
                 .from_gpu = local->in_gpu},
                behind ? &notice : nullptr);
  if (operation == nullptr) return false;
  if (!qp.awaits()) qp.since = now_;
  operation->number = qp.work.start();
  operation->bytes = request.length;
  operation->departure = depart(turn, request.length, request.length);
  operation->local_key = request.local_key;
  operation->remote_key = request.remote_key;
  operation->immediate = request.immediate;
  operation->notifies = notifies && !behind;
  ++qp.started;
  qp.regions.on_write_started(request.remote_key);
  endpoints_.on_started(endpoint, request.length);
  if (operation->notifies && notification_ == OfiNotification::kAfterWrite) {
    operation->notifies = false;
    operation->finishes = false;
    queue_message(qp, notice, operation->number, endpoint);
  }
  return true;
}

OfiOperation* OfiNic::hand_over(QueuePair& qp, OfiOperation::Kind kind, uint8_t endpoint,
                                OfiWrite write, const OfiMessage* message) {
  OfiOperation* const operation = operations_.take(kind);
  if (operation == nullptr) {
    block(qp);
    return nullptr;
  }
  if (message != nullptr) write.behind = qp.part_of(qp.mailbox.send(*message));
  write.peer = qp.peers[endpoint];
  write.context = &operation->context;
  if (const int error = endpoints_.write(endpoint, write); error != 0) {
    if (message != nullptr) qp.mailbox.undo_send();
    operations_.give_back(*operation);
    on_refused(qp, error);
    return nullptr;
  }
  qp.retry_after = Duration();
  operation->queue_pair = qp.id;
  operation->endpoint = endpoint;
  return operation;
}

void OfiNic::on_refused(QueuePair& qp, int error) {
  if (error == -FI_EAGAIN) return block(qp);
  qp.peer_dead = true;
  break_queue_pair(qp, domain_.failure(error));
}

void OfiNic::block(QueuePair& qp) {
  const bool again = qp.retry_after != Duration();
  if (!again && !qp.awaits()) qp.since = now_;
  qp.blocked = true;
  qp.retry_after = std::clamp(qp.retry_after * 2, kRetryAfter, kRetryAfterMost);
  qp.retry_at = now_ + qp.retry_after;
  blocked_.add(slot_of(qp.id));
  retry_at_ = std::min(retry_at_, qp.retry_at);
}

// Call it after removing the queue pair from blocked_.
void OfiNic::unblock(QueuePair& qp) {
  qp.blocked = false;
  with_messages_.add(slot_of(qp.id));
  wake(qp);
}

void OfiNic::unblock_if(const std::function<bool(const QueuePair&)>& meant) {
  for (size_t left = blocked_.size(); left > 0; --left) {
    const uint32_t slot = blocked_.take();
    QueuePair& qp = *queue_pairs_[slot];
    if (meant(qp)) {
      unblock(qp);
    } else {
      blocked_.add(slot);
    }
  }
}

// The provider may have room for this peer again: other blocked queue pairs get it first.
void OfiNic::on_room(QueuePair& qp) {
  unblock_if([&qp](const QueuePair& other) { return &other != &qp && other.peers == qp.peers; });
  if (!qp.blocked) return;
  blocked_.remove(slot_of(qp.id));
  unblock(qp);
}

void OfiNic::retry_blocked(Instant now) {
  if (now < retry_at_) return;
  unblock_if([now](const QueuePair& qp) { return qp.retry_at <= now; });
  retry_at_ = Instant::never();
  for (size_t i = 0; i < blocked_.size(); ++i) {
    retry_at_ = std::min(retry_at_, queue_pairs_[blocked_[i]]->retry_at);
  }
}

void OfiNic::queue_message(QueuePair& qp, const OfiMessage& message, uint64_t finishes,
                           uint8_t endpoint) {
  if (!qp.awaits()) qp.since = now_;
  if (!qp.outbox.push({.message = message, .finishes = finishes, .endpoint = endpoint})) {
    return on_protocol_error(qp, "the peer asks more than it may at once");
  }
  with_messages_.add(slot_of(qp.id));
}

size_t OfiNic::transmit_messages() {
  size_t count = 0;
  for (size_t left = with_messages_.size(); left > 0; --left) {
    QueuePair& qp = *queue_pairs_[with_messages_.take()];
    while (!qp.blocked && !qp.peer_dead && !qp.outbox.empty() && qp.mailbox.has_room() &&
           send_message(qp, qp.outbox.front())) {
      qp.outbox.pop_front();
      ++count;
    }
    if (!qp.blocked && !qp.peer_dead && qp.mailbox.must_return_credit() &&
        qp.mailbox.has_reserved_room()) {
      send_message(qp, {.message = {.kind = OfiMessage::Kind::kCredit}});
    }
    if (qp.leaving()) leaving_.add(slot_of(qp.id));
  }
  return count;
}

bool OfiNic::send_message(QueuePair& qp, const OfiQueuePair::QueuedMessage& queued) {
  OfiOperation* const operation = hand_over(qp, OfiOperation::Kind::kMessage, queued.endpoint,
                                            {.part = {}, .behind = {}}, &queued.message);
  if (operation == nullptr) return false;
  operation->number = queued.finishes;
  operation->finishes = queued.finishes != OfiQueuePair::kNoNumber;
  ++qp.messages;
  return true;
}

// A gap between our turns does not count as a peer's silence.
void OfiNic::set_time(Instant now) {
  const Duration gap = now - now_;
  now_ = now;
  if (gap < config_.silence_limit / 8) return;
  for (const uint32_t slot : live_) queue_pairs_[slot]->since = queue_pairs_[slot]->since + gap;
}

void OfiNic::on_time(Instant now) {
  set_time(now);
  flows_.on_time(now);
  retry_blocked(now);
  watch(now);
}

// Breaks the queue pairs of peers that are silent for too long.
void OfiNic::watch(Instant now) {
  if (now < next_watch_) return;
  next_watch_ = now + config_.silence_limit / 16;
  for (const uint32_t slot : live_) {
    QueuePair& qp = *queue_pairs_[slot];
    if (!qp.connected() || !qp.awaits() || now - qp.since < config_.silence_limit) continue;
    break_queue_pair(
        qp, CompletionStatus::kRetryExceeded,
        fmt::format("nothing has come back for {:g} s", config_.silence_limit.seconds()),
        "look for the first error at the peer, and at the links and routes to it (PACECAR_TIMEOUT "
        "bounds the wait)");
  }
}

Instant OfiNic::next_deadline() const {
  if (!all_polled() || !leaving_.empty() || !controls_.empty()) return Instant();
  const auto is_watched = [this](uint32_t slot) {
    const QueuePair& qp = *queue_pairs_[slot];
    return qp.connected() && qp.awaits();
  };
  Instant next = std::min(flows_.next_deadline(), retry_at_);
  if (!with_messages_.empty()) next = Instant();
  if (std::ranges::any_of(live_, is_watched)) next = std::min(next, next_watch_);
  return next;
}

}  // namespace pacecar
