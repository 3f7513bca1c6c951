#include "transport/message/receive_side.h"

#include <algorithm>

#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

// How long a posted buffer may wait to be advertised while the peer has others.
constexpr Duration kAdvertiseDelay = Duration::from_ms(4);
// How much earlier it is advertised if the same poll posts data to that peer.
constexpr Duration kInPassing = Duration::from_ms(3);

}  // namespace

Result<ReceiveSide::Answered> ReceiveSide::open(std::span<const uint8_t> bytes, Instant now) {
  ASSIGN_OR_RETURN(auto offer, decode_offer(bytes));
  ASSIGN_OR_RETURN(auto made, make());
  ReceiveEnd& end = *made;
  const auto flow = flow_of(offer, now);
  if (!flow) {
    discard(end);
    return tl::unexpected(flow.error());
  }
  (*flow)->state = FlowState::kOpen;  // also if it was leaving
  const uint32_t eager = std::min(offer.eager, config_.eager);
  end.flow = *flow;
  end.number = offer.number;
  end.offered = offer.count;
  end.weight = offer.weight;
  end.remote_table = offer.table;
  end.queue.enable_eager(EagerCells(eager), cells(end));
  take_number(**flow, offer, now);
  (*flow)->numbered.put(offer.number, end.id);
  add(std::move(made), now);
  return Answered{end.id, encode(Answer{.end = end.flow->local,
                                        .eager = eager,
                                        .table = remote_address_of(end.table_region)})};
}

// The flow that the connection is offered on, made if it is new.
Result<MessageFlow*> ReceiveSide::flow_of(const Offer& offer, Instant now) {
  MessageFlow* flow = flows_.find(offer.sender, offer.flow);
  if (flow == nullptr) {
    if (offer.joined) return flow_ended();
    auto made = flows_.make(false, offer.sender, offer.flow);
    if (!made) return made;
    (*made)->obeys = offer.obeys == rates_.own_allocator();
    if (auto joined = flows_.join(**made, offer.end, now); !joined) {
      flows_.remove(**made, now);
      return tl::unexpected(joined.error());
    }
    return made;
  }
  if (!std::ranges::equal(flow->remote.data.view(), offer.end.data.view())) {
    return pacecar::fail(ErrorCode::kPeer, "the peer offers a flow that is another one here");
  }
  const ConnectionId last = flow->numbered.at(offer.number);
  if (last != FlowConnections::kNone && ends_[last].offered >= offer.count) {
    return pacecar::fail(ErrorCode::kPeer, "the peer has given up this offer");
  }
  return flow;
}

// A connection that had the number before fails: the sender has released it, and no more comes.
void ReceiveSide::take_number(const MessageFlow& flow, const Offer& offer, Instant now) {
  const ConnectionId last = flow.numbered.at(offer.number);
  if (last == FlowConnections::kNone) return;
  ends_[last].peer_closed = true;
  fail(ends_[last], MessageFailure::kPeerClosed, now);
}

void ReceiveSide::close(ConnectionId connection, uint64_t completed_slots) {
  ReceiveEnd& end = ends_[connection];
  end.completed_slots = completed_slots;
  end.queue.drop_requests();
  end.closed = true;
  to_advertise_.remove(connection);
  attended_.add(connection);
  post_close(end, completed_slots);
}

void ReceiveSide::break_flow(MessageFlow& flow, MessageFailure failure, Instant now) {
  flows_.end(flow);
  for (const ConnectionId id : flow.numbered.all()) {
    if (id != FlowConnections::kNone) fail(ends_[id], failure, now);
  }
}

void ReceiveSide::fail(ReceiveEnd& end, MessageFailure failure, Instant now) {
  if (end.failed()) return;
  end.failure = failure;
  const Bytes posted = end.queue.posted_bytes();
  end.queue.fail(failure);
  to_advertise_.remove(end.id);
  rates_.on_finished(*end.flow, posted, now);
}

bool ReceiveSide::receive(ConnectionId connection, MessageReceive& receive, Instant now) {
  ReceiveEnd& end = ends_[connection];
  check_close(end, now);
  // A peer that has ended may have sent eager messages before; nothing follows a failed receive.
  const bool failed = end.failed();
  const bool ended =
      end.failure == MessageFailure::kPeerClosed || end.failure == MessageFailure::kPeerSilent;
  if (failed && !(ended && end.queue.has_leftovers())) {
    receive.failure = end.failure;
    receive.set(MessageRequest::State::kFailed);
    return true;
  }
  const Bytes before = end.queue.posted_bytes();
  if (!end.queue.post(receive)) return false;
  Bytes bytes = end.queue.posted_bytes() - before;
  rates_.on_posted(*end.flow, bytes, now);
  if (end.queue.holds_messages()) {
    ReceiveQueue::Progress progress;
    const auto arrival = end.queue.take_eager(&progress);
    on_arrival(end, arrival, progress, now);
    if (!failed && end.failed()) return true;  // protocol error
    bytes -= std::min(bytes, progress.finished);
  }
  if (failed) {  // no more will come
    end.queue.fail(end.failure);
    rates_.on_finished(*end.flow, bytes, now);
    return true;
  }
  to_advertise_.add(connection);
  attended_.add(connection);
  return true;
}

void ReceiveSide::forget_memory(uint32_t key, Instant now) {
  for_attended([&](ReceiveEnd& end) {
    if (end.queue.uses(key)) fail(end, MessageFailure::kMemoryGone, now);
  });
}

bool ReceiveSide::write_note(ConnectionId connection, LaneNote note) {
  return post_note(ends_[connection], note);
}

LaneSight ReceiveSide::lane(ConnectionId connection) const {
  const ReceiveEnd& end = ends_[connection];
  return {.writes = end.slot_writes_outstanding,
          .life = end.queue.moves() + end.slot_writes_done + end.notes_done,
          .closed = CloseWord::closed(peer_close(end)),
          .failure = end.failure};
}

void ReceiveSide::renew(ConnectionId connection, Instant now) {
  ReceiveEnd& end = ends_[connection];
  const Bytes forgotten = end.queue.renew();
  if (!end.failed()) rates_.on_finished(*end.flow, forgotten, now);
}

void ReceiveSide::on_write(const MessageFlow& flow, const Immediate& immediate, Bytes bytes,
                           Instant now) {
  const ConnectionId id = flow.numbered.at(immediate.connection);
  if (id == FlowConnections::kNone) {
    ++counters_.protocol_errors;
    return;
  }
  ReceiveEnd& end = ends_[id];
  if (end.failed()) return;
  ReceiveQueue::Progress progress;
  const auto arrival = end.queue.on_write(immediate, bytes, &progress);
  on_arrival(end, arrival, progress, now);
}

void ReceiveSide::on_arrival(ReceiveEnd& end, ReceiveQueue::Arrival arrival,
                             const ReceiveQueue::Progress& progress, Instant now) {
  if (progress.finished > 0) rates_.on_finished(*end.flow, progress.finished, now);
  counters_.bytes_received += progress.payload;
  counters_.messages_received += progress.messages;
  if (arrival == ReceiveQueue::Arrival::kOk) return;
  ++counters_.protocol_errors;
  fail(end, MessageFailure::kPeerProtocol, now);
}

void ReceiveSide::advertise(const NicIdentity* data_posted_to, Instant now) {
  next_advertising_ = Instant::never();
  for (size_t left = to_advertise_.size(); left > 0; --left) {
    ReceiveEnd& end = ends_[to_advertise_.take()];
    const ReceiveQueue::Run run = end.queue.next_run();
    if (run.count == 0) {  // all are advertised, or the ring is full until the next message
      if (!end.queue.all_advertised()) to_advertise_.add(end.id);
      continue;
    }
    if (end.advertise_at == Instant::never()) end.advertise_at = now + kAdvertiseDelay;
    const bool passes = data_posted_to != nullptr && *data_posted_to == end.flow->peer;
    const Instant advertise_at = passes ? end.advertise_at - kInPassing : end.advertise_at;
    if (now < advertise_at && !end.queue.urgent(load_polled(end.table->peer_wanted))) {
      next_advertising_ = std::min(next_advertising_, end.advertise_at);
      to_advertise_.add(end.id);
      continue;
    }
    const bool posted = post_slots(end, run);
    if (!end.queue.all_advertised()) to_advertise_.add(end.id);
    // The ring wraps, or the queue pair is full: the rest follows at once, or after a pause if the
    // peer is silent.
    if (end.queue.next_run().count > 0) {
      end.advertise_at = now;
      next_advertising_ =
          now + (silence_of(*end.flow) < kNoticedSilence ? Duration() : kAdvertiseDelay);
    }
    if (!posted) return;
  }
}

// False: the queue pair is full.
bool ReceiveSide::post_slots(ReceiveEnd& end, const ReceiveQueue::Run& run) {
  end.queue.write(run, rates_.grant_word(*end.flow), *end.table);
  WorkRequest write = table_write(end, WorkId::Kind::kSlots, &end.table->slots[run.first],
                                  run.count * sizeof(CtsSlot), run.first * sizeof(CtsSlot));
  write.passing = true;
  if (!control_.post(*end.flow, write)) return false;
  end.queue.on_run_posted(run.count);
  ++end.slot_writes_outstanding;
  end.advertise_at = Instant::never();
  return true;
}

void ReceiveSide::on_slots_written(ConnectionId connection, bool ok, Instant now) {
  ReceiveEnd& end = ends_[connection];
  --end.slot_writes_outstanding;
  ++end.slot_writes_done;
  if (!ok) fail(end, MessageFailure::kPeerClosed, now);  // its table is gone
}

void ReceiveSide::do_housekeeping(Instant now) {
  visit_attended([&](ReceiveEnd& end) {
    const bool closing = check_close(end, now);
    if (end.closed) post_close(end, end.completed_slots);
    return supervise(end, end.slot_writes_outstanding > 0, closing, now);
  });
}

// True while completions of writes that the peer sent before it closed may be outstanding.
bool ReceiveSide::check_close(ReceiveEnd& end, Instant now) {
  const uint64_t word = peer_close(end);
  const bool closing = CloseWord::closed(word) && !end.peer_closed;
  if (closing && end.close_due == Instant::never()) end.close_due = now + config_.silence_limit;
  // Messages that arrived before the close still count: their completions may not be polled yet.
  if (closing && (end.queue.moves() >= CloseWord::count(word) || now >= end.close_due)) {
    end.peer_closed = true;
    fail(end, MessageFailure::kPeerClosed, now);
  }
  return closing && !end.peer_closed;
}

std::optional<Stall> ReceiveSide::stall(ConnectionId connection) const {
  const ReceiveEnd& end = ends_[connection];
  if (!end.progress.stalled()) return std::nullopt;
  return Stall{.lasted = end.progress.stalled_for(now_),
               .connections = 1,
               .requests = end.queue.requests(),
               .awaits_peer = true,
               .silence = silence_of(*end.flow),
               .peer_address = end.flow->peer_address};
}

}  // namespace pacecar
