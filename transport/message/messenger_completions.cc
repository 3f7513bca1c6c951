// What Messenger does with the NIC's completions.
#include <span>

#include "transport/message/flow.h"
#include "transport/message/messenger.h"

namespace pacecar {
namespace {

template <typename End>
void on_note_done(End& end, bool ok) {
  --end.notes_outstanding;
  if (ok) ++end.notes_done;
}

// The peer keeps its table until both have closed: if it refuses the write, it has closed already.
template <typename End>
void on_close_sent(End& end, bool ok) {
  end.close_outstanding = false;
  if (!ok) end.peer_closed = true;
}

}  // namespace

void Messenger::poll_completions(Instant now) {
  size_t count = 0;
  do {
    count = nic_.poll(completions_);
    for (const Completion& completion : std::span(completions_).first(count)) {
      switch (completion.kind) {
        case CompletionKind::kSent:
          on_sent(completion);
          break;
        case CompletionKind::kReceived:
          on_received(completion, now);
          break;
        case CompletionKind::kBroken:
          on_broken(completion);
          break;
        case CompletionKind::kReceivedSend:  // only where receive requests were posted
          break;
      }
    }
  } while (count == completions_.size());
}

void Messenger::on_sent(const Completion& completion) {
  const WorkId id = WorkId::unpack(completion.work_request);
  const bool ok = completion.status == CompletionStatus::kOk;
  switch (id.kind) {
    case WorkId::Kind::kData: {
      Sender& sender = senders_[id.owner];
      // Withdrawn writes are never acknowledged: without writes at the NIC the backlog is 0.
      if (--sender.flow->writes == 0) {
        sender.flow->stats.backlog = 0;
        settle_later(*sender.flow, false);
      }
      const uint32_t done = sender.queue.on_write_done(id.number, completion.status);
      if (ok) counters_.messages_sent += done;
      if (done > 0 && sender.queue.waiting()) look_ = true;  // a cell is free
      const bool posts =
          sender.failure == MessageFailure::kNone && (!sender.closed || sender.lingers);
      if (posts && sender.queue.gives_up()) posting_.add(sender.id);
      if (sender.closed) send_close(sender);
      break;
    }
    case WorkId::Kind::kSlots: {
      Receiver& receiver = receivers_[id.owner];
      --receiver.slot_writes_outstanding;
      ++receiver.slot_writes_done;
      if (!ok) fail_connection(receiver, MessageFailure::kPeerClosed);  // its table is gone
      break;
    }
    case WorkId::Kind::kWord: {
      Flow& flow = flows_[id.owner];
      --flow.words_outstanding;
      if (words_out_[flow.id] != flow.word_posted) word_pending_.add(flow.id);
      break;
    }
    case WorkId::Kind::kClose:
      if (id.number == 0) {
        on_close_sent(senders_[id.owner], ok);
      } else {
        on_close_sent(receivers_[id.owner], ok);
      }
      break;
    case WorkId::Kind::kWant:
      break;
    case WorkId::Kind::kNote:
      if (id.number == 0) {
        on_note_done(senders_[id.owner], ok);
      } else {
        on_note_done(receivers_[id.owner], ok);
      }
      break;
  }
}

void Messenger::on_broken(const Completion& completion) {
  Flow* flow = flow_of(completion.queue_pair);
  if (flow == nullptr) return;
  flow->fault = nic_.fault(completion.queue_pair);
  break_flow(*flow, MessageFailure::kPeerSilent);
}

void Messenger::on_received(const Completion& completion, Instant now) {
  const Immediate immediate = Immediate::unpack(completion.immediate);
  const Flow* flow = flow_of(completion.queue_pair);
  const bool carries_data =
      flow != nullptr && !flow->sending && flow->data == completion.queue_pair;
  const ConnectionId id =
      carries_data ? flow->numbered.at(immediate.connection) : FlowConnections::kNone;
  if (id == FlowConnections::kNone) {
    ++counters_.protocol_errors;
    return;
  }
  Receiver& receiver = receivers_[id];
  if (receiver.failure != MessageFailure::kNone) return;
  ReceiveQueue::Progress progress;
  const auto arrival = receiver.queue.on_write(immediate, completion.bytes, &progress);
  on_arrival(receiver, arrival, progress, now);
}

void Messenger::on_arrival(Receiver& receiver, ReceiveQueue::Arrival arrival,
                           const ReceiveQueue::Progress& progress, Instant now) {
  if (progress.finished > 0 && receiver.flow->obeys) {
    allocator_->on_finished(now, receiver.flow->id, progress.finished);
  }
  counters_.bytes_received += progress.payload;
  counters_.messages_received += progress.messages;
  if (arrival == ReceiveQueue::Arrival::kOk) return;
  ++counters_.protocol_errors;
  fail_connection(receiver, MessageFailure::kPeerProtocol);
}

}  // namespace pacecar
