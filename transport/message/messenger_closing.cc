// How connections end: closed by the application or the peer, or failed.
#include <cstddef>

#include "transport/message/flow.h"
#include "transport/message/messenger.h"

namespace pacecar {

bool Messenger::releasing_sends() const {
  for (size_t i = 0; i < open_senders_.size(); ++i) {
    if (senders_[open_senders_[i]].closed) return true;
  }
  return false;
}

bool Messenger::releasing_receives() const {
  for (size_t i = 0; i < open_receivers_.size(); ++i) {
    if (receivers_[open_receivers_[i]].closed) return true;
  }
  return false;
}

void Messenger::close_send(ConnectionId connection, Instant now) {
  Sender& sender = senders_[connection];
  sender.lingers = !sender.queue.owes();
  sender.queue.drop_requests();
  sender.closed = true;
  matching_.remove(connection);
  if (!sender.lingers) posting_.remove(connection);
  housekeeping_due_ = true;
  if (!sender.open) return release(sender, now);  // the peer finds out by itself
  open_senders_.add(connection);
  send_close(sender);
}

void Messenger::close_receive(ConnectionId connection, Instant now) {
  close_receive(connection, now, receivers_[connection].queue.completed_slots());
}

void Messenger::close_receive(ConnectionId connection, Instant, uint64_t completed_slots) {
  Receiver& receiver = receivers_[connection];
  receiver.completed_slots = completed_slots;
  receiver.queue.drop_requests();
  receiver.closed = true;
  to_advertise_.remove(connection);
  open_receivers_.add(connection);
  housekeeping_due_ = true;
  send_close(receiver);
}

void Messenger::send_close(Sender& sender) {
  if (sender.close_sent || sender.flow->state != Flow::State::kOpen) return;
  if (sender.lingers && !sender.queue.settled()) return;
  sender.table->own_close = CloseWord::pack(sender.queue.arrived());
  sender.close_sent = sender.close_outstanding = post_control(
      *sender.flow,
      table_write({WorkId::Kind::kClose, sender.id, 0}, &sender.table->own_close, sizeof(uint64_t),
                  sender.table_region, sender.remote_table, offsetof(ReceiveTable, peer_close)));
}

void Messenger::send_close(Receiver& receiver) {
  if (receiver.close_sent || receiver.flow->state != Flow::State::kOpen) return;
  receiver.table->own_close = CloseWord::pack(receiver.completed_slots);
  receiver.close_sent = receiver.close_outstanding =
      post_control(*receiver.flow,
                   table_write({WorkId::Kind::kClose, receiver.id, 1}, &receiver.table->own_close,
                               sizeof(uint64_t), receiver.table_region, receiver.remote_table,
                               offsetof(SendTable, peer_close)));
}

void Messenger::fail_connection(Sender& sender, MessageFailure failure) {
  if (sender.failure != MessageFailure::kNone) return;
  sender.failure = failure;
  sender.lingers = false;
  sender.queue.fail(failure);
  matching_.remove(sender.id);
  posting_.remove(sender.id);
}

void Messenger::fail_connection(Receiver& receiver, MessageFailure failure) {
  if (receiver.failure != MessageFailure::kNone) return;
  receiver.failure = failure;
  const Bytes posted = receiver.queue.posted_bytes();
  receiver.queue.fail(failure);
  to_advertise_.remove(receiver.id);
  if (receiver.flow->obeys) allocator_->on_finished(now_, receiver.flow->id, posted);
}

void Messenger::release(const Sender& sender, Instant now) {
  Flow& flow = *sender.flow;
  nic_.deregister_memory(sender.table_region);
  flow.numbered.remove(sender.number);
  open_senders_.remove(sender.id);
  send_tables_.give_back(sender.id);
  const uint32_t weight = sender.weight;
  senders_.remove(sender.id);
  if (weight > 1 && weight == flow.weight) weigh(flow, now);
  leave(flow, now);
}

void Messenger::release(const Receiver& receiver, Instant now) {
  Flow& flow = *receiver.flow;
  nic_.deregister_memory(receiver.table_region);
  flow.numbered.take(receiver.number, receiver.id);
  open_receivers_.remove(receiver.id);
  receive_tables_.give_back(receiver.id);
  const uint32_t weight = receiver.weight;
  receivers_.remove(receiver.id);
  if (weight > 1 && weight == flow.weight) weigh(flow, now);
  leave(flow, now);
}

bool Messenger::drained() const {
  const auto closing = [](const WorkList& open, const auto& ends) {
    for (size_t i = 0; i < open.size(); ++i) {
      const auto& end = ends[open[i]];
      if (end.closed && end.flow->state == Flow::State::kOpen &&
          (!end.close_sent || end.close_outstanding)) {
        return true;
      }
    }
    return false;
  };
  return !closing(open_senders_, senders_) && !closing(open_receivers_, receivers_);
}

}  // namespace pacecar
