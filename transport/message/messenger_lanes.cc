// What Messenger does for connections that are lanes of a bonded one.
#include <cstddef>

#include "transport/base/check.h"
#include "transport/message/flow.h"
#include "transport/message/messenger.h"

namespace pacecar {
const NoteWords& Messenger::note_to_sender(ConnectionId connection) const {
  return senders_[connection].table->peer_note;
}

const NoteWords& Messenger::note_to_receiver(ConnectionId connection) const {
  return receivers_[connection].table->peer_note;
}

bool Messenger::write_to_receiver(ConnectionId connection, LaneNote note) {
  Sender& sender = senders_[connection];
  if (!sender.open || sender.flow->state != FlowState::kOpen) return false;
  note.next = sender.queue.arrived();
  sender.table->own_note = seal(note);
  const bool posted = post_control(
      *sender.flow,
      table_write({WorkId::Kind::kNote, connection, 0}, &sender.table->own_note, sizeof(NoteWords),
                  sender.table_region, sender.remote_table, offsetof(ReceiveTable, peer_note)));
  if (posted) ++sender.notes_outstanding;
  return posted;
}

bool Messenger::write_to_sender(ConnectionId connection, LaneNote note) {
  Receiver& receiver = receivers_[connection];
  if (receiver.flow->state != FlowState::kOpen) return false;
  receiver.table->own_note = seal(note);
  const bool posted = post_control(
      *receiver.flow, table_write({WorkId::Kind::kNote, connection, 1}, &receiver.table->own_note,
                                  sizeof(NoteWords), receiver.table_region, receiver.remote_table,
                                  offsetof(SendTable, peer_note)));
  if (posted) ++receiver.notes_outstanding;
  return posted;
}

Messenger::LaneSight Messenger::send_lane(ConnectionId connection) const {
  const Sender& sender = senders_[connection];
  return {.writes = sender.queue.outstanding(),
          .life = sender.queue.moves() + sender.flow->stats.acked + sender.notes_done,
          .closed = CloseWord::closed(load_polled(sender.table->peer_close)),
          .failure = sender.failure};
}

Messenger::LaneSight Messenger::receive_lane(ConnectionId connection) const {
  const Receiver& receiver = receivers_[connection];
  return {.writes = receiver.slot_writes_outstanding,
          .life = receiver.queue.moves() + receiver.slot_writes_done + receiver.notes_done,
          .closed = CloseWord::closed(load_polled(receiver.table->peer_close)),
          .failure = receiver.failure};
}

uint64_t Messenger::completed_by_peer(ConnectionId sender) const {
  return CloseWord::count(load_polled(senders_[sender].table->peer_close));
}

void Messenger::hold_sends(ConnectionId connection, bool held) {
  Sender& sender = senders_[connection];
  sender.held = held;
  if (held || sender.failure != MessageFailure::kNone) return;
  matching_.add(connection);
  posting_.add(connection);
  look_ = true;
}

void Messenger::renew_sends(ConnectionId connection, uint64_t next_slot) {
  Sender& sender = senders_[connection];
  PACECAR_CHECK(sender.held);
  sender.queue.renew(next_slot);
}

void Messenger::renew_receives(ConnectionId connection, Instant now) {
  Receiver& receiver = receivers_[connection];
  const Bytes forgotten = receiver.queue.renew();
  if (receiver.flow->obeys && receiver.failure == MessageFailure::kNone)
    allocator_->on_finished(now, receiver.flow->id, forgotten);
}

const ReceiveQueue& Messenger::receives(ConnectionId connection) const {
  return receivers_[connection].queue;
}

void Messenger::break_send(ConnectionId connection) { break_now(*senders_[connection].flow); }

void Messenger::break_receive(ConnectionId connection) { break_now(*receivers_[connection].flow); }

// Polls first: what the peer knows as acknowledged must be counted here.
void Messenger::break_now(Flow& flow) {
  if (flow.state == Flow::State::kBroken) return;
  nic_.halt_queue_pair(flow.data);
  poll_completions(now_);
  if (flow.state != Flow::State::kBroken) break_flow(flow, MessageFailure::kPeerSilent);
}

}  // namespace pacecar
