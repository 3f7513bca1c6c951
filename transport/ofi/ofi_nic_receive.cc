// The part of OfiNic that receives: completions of the provider, and messages of peers.
#include <algorithm>

#include "transport/ofi/ofi_nic.h"

namespace pacecar {

size_t OfiNic::receive(Instant now) {
  set_time(now);
  // Without room here, completions stay at the provider, and messages in the rings.
  if (failed_ || received_.size() + 2 * OfiDomain::kBatch > received_.capacity()) return 0;
  const auto entries = domain_.poll();
  size_t count = entries.size();
  for (const fi_cq_data_entry& entry : entries) on_entry(entry, now);
  for (; const auto failed = domain_.take_failure(); ++count) on_failure(*failed);
  for (const uint32_t slot : live_) count += take_messages(*queue_pairs_[slot]);
  sweep();
  return count;
}

OfiNic::QueuePair* OfiNic::end_operation(void* context, OfiOperation* ended) {
  OfiOperation* operation = operations_.find(context);
  if (operation == nullptr) return nullptr;
  *ended = *operation;
  operations_.give_back(*operation);
  QueuePair* qp = find_any(ended->queue_pair);
  if (qp == nullptr) return nullptr;
  if (ended->kind == OfiOperation::Kind::kMessage) {
    --qp->messages;
    return qp;
  }
  --qp->started;
  endpoints_.on_done(ended->endpoint, ended->bytes);
  release_window(*ended);
  if (qp->regions.on_write_done(ended->remote_key)) {
    queue_message(*qp, {.kind = OfiMessage::Kind::kRevoked, .key = ended->remote_key});
  }
  return qp;
}

void OfiNic::on_entry(const fi_cq_data_entry& entry, Instant now) {
  if ((entry.flags & FI_REMOTE_WRITE) != 0) {  // with completion data: its sender is unknown
    ++counters_.unknown_queue_pair;
    return;
  }
  OfiOperation done;
  QueuePair* qp = end_operation(entry.op_context, &done);
  if (qp == nullptr) return;
  qp->since = now;
  if (done.kind == OfiOperation::Kind::kWrite) {
    const Duration rtt = std::max(now - done.departure, Duration::from_ns(1));
    const bool flows = qp->config.paced && !qp->leaving();
    if (flows) flows_.on_acknowledged(qp->config.flow, done.bytes, rtt);
    if (done.notifies && qp->connected()) {
      queue_message(
          *qp, {.kind = OfiMessage::Kind::kNotify, .key = done.immediate, .length = done.bytes},
          done.number);
    }
  }
  if (done.finishes && !done.notifies) finish(*qp, done.number, CompletionStatus::kOk);
  on_room(*qp);
  wake(*qp);
  step_leaving(*qp);
}

void OfiNic::on_failure(const OfiDomain::Failed& failed) {
  OfiOperation done;
  QueuePair* qp = end_operation(failed.context, &done);
  if (qp == nullptr) return;
  const OfiErrorInfo& info = ofi_error_info(failed.failure);
  const bool write = done.kind == OfiOperation::Kind::kWrite;
  // Without a connection neither end writes to the other's memory, so the peer counts as dead.
  if (info.status == CompletionStatus::kRetryExceeded) qp->peer_dead = true;
  if (write && info.status == CompletionStatus::kRemoteAccessError && done.finishes) {
    finish(*qp, done.number, info.status);
  }
  break_queue_pair(*qp, failed.failure);
  wake(*qp);
}

void OfiNic::finish(QueuePair& qp, uint64_t number, CompletionStatus status) {
  qp.work.finish(number, status);
  if (!qp.leaving()) completed_.add(slot_of(qp.id));
}

size_t OfiNic::take_messages(QueuePair& qp) {
  size_t count = 0;
  const bool had_room = qp.mailbox.has_room();
  while (!received_.full()) {
    const auto message = qp.mailbox.take();
    if (!message) break;
    ++count;
    qp.since = now_;
    on_message(qp, *message);
  }
  if (qp.mailbox.broke_protocol()) on_protocol_error(qp);
  // There may be room in the peer's ring now, or many messages to acknowledge.
  if (count > 0) with_messages_.add(slot_of(qp.id));
  if (!had_room && qp.mailbox.has_room()) wake(qp);
  return count;
}

void OfiNic::on_protocol_error(QueuePair& qp, std::string_view what) {
  break_queue_pair(qp, CompletionStatus::kLocalError, what,
                   "run the same version of Pacecar on both sides");
}

void OfiNic::on_message(QueuePair& qp, const OfiMessage& message) {
  switch (message.kind) {
    case OfiMessage::Kind::kAsk: return on_ask(qp, message.key);
    case OfiMessage::Kind::kRegion: return on_region(qp, message);
    case OfiMessage::Kind::kRevoke:
      if (qp.regions.revoke(message.key) && !qp.gone_sent) {
        queue_message(qp, {.kind = OfiMessage::Kind::kRevoked, .key = message.key});
      }
      return;
    case OfiMessage::Kind::kRevoked: qp.advertised.erase(message.key); return;
    case OfiMessage::Kind::kNotify:
      if (message.length > OfiTraits::kMaxWrite) return on_protocol_error(qp);
      if (!qp.connected() || qp.halted) {
        ++counters_.unknown_queue_pair;
        return;
      }
      return on_arrived(qp, message.length, message.key);
    case OfiMessage::Kind::kCredit: return;
    case OfiMessage::Kind::kGone:
      qp.peer_gone = true;
      qp.advertised.clear();
      break_queue_pair(qp, CompletionStatus::kRetryExceeded, "the peer has closed its end",
                       "look for the first error there");
      return step_leaving(qp);
  }
  on_protocol_error(qp, "the peer sends an unknown message");
}

void OfiNic::on_ask(QueuePair& qp, uint32_t key) {
  OfiMessage answer{.kind = OfiMessage::Kind::kRegion, .key = key};
  const OfiRegistrations::Region* region = memory_.find(key);
  const bool granted =
      region != nullptr && retiring_ != key && allows(region->access, Access::kRemoteWrite);
  if (granted && qp.connected() && !qp.halted) {
    qp.advertised.insert(key);
    answer.address = region->address;
    answer.provider_address = region->place;
    answer.provider_key = region->provider_key;
    answer.length = region->length;
  }
  if (answer.length == 0 && ++qp.refused > QueuePair::kMaxRefused) {
    return on_protocol_error(qp, "the peer asks for memory that was not advertised to it");
  }
  if (!qp.leaving()) queue_message(qp, answer);
}

void OfiNic::on_region(QueuePair& qp, const OfiMessage& message) {
  if (!qp.connected() || qp.asked != message.key) return;
  qp.asked.reset();
  if (qp.regions.add(message.key, {.address = message.address,
                                   .place = message.provider_address,
                                   .provider_key = message.provider_key,
                                   .length = message.length})) {
    return wake(qp);
  }
  for (const WorkRequest* next = qp.work.waiting();
       next != nullptr && next->length > 0 && next->remote_key == message.key;
       next = qp.work.waiting()) {
    finish(qp, qp.work.start(), CompletionStatus::kRemoteAccessError);
  }
  wake(qp);
}

bool OfiNic::prepare_to_wait(Instant /*now*/) {
  const bool idle = failed_ || domain_.prepare_to_wait();
  // The provider does not wake us again for writes that it has placed already.
  const auto has_mail = [this](uint32_t slot) { return queue_pairs_[slot]->mailbox.has_arrived(); };
  return idle && all_polled() && std::ranges::none_of(live_, has_mail);
}

}  // namespace pacecar
