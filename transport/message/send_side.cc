#include "transport/message/send_side.h"

#include <algorithm>

#include "transport/base/check.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

// Writes that one connection posts before the next connection's turn.
constexpr int kWritesPerTurn = 8;

}  // namespace

Result<SendSide::Offered> SendSide::open(const NicIdentity& peer, Instant now, uint32_t weight,
                                         ConnectionRole role) {
  PACECAR_CHECK(weight <= kMaxWeight);
  ASSIGN_OR_RETURN(auto made, make());
  SendEnd& end = *made;
  MessageFlow* flow = flows_.find_shareable(peer);
  end.shares = flow != nullptr;
  if (flow == nullptr) {
    auto made_flow = flows_.make(true, peer, next_flow_number_++);
    if (!made_flow) {
      discard(end);
      return tl::unexpected(made_flow.error());
    }
    flow = *made_flow;
  }
  end.flow = flow;
  end.eager = role == ConnectionRole::kWhole ? config_.eager : 0;
  end.weight = weight == 0 ? config_.weight : weight;
  end.number = flow->numbered.add(end.id);
  flow->posting.widen(end.number + 1);
  add(std::move(made), now);
  return Offered{end.id, encode(Offer{.sender = config_.identity,
                                      .flow = flow->number,
                                      .joined = flow->state == FlowState::kOpen,
                                      .obeys = rates_.obeys(),
                                      .weight = end.weight,
                                      .eager = end.eager,
                                      .number = end.number,
                                      .count = ++offers_,
                                      .end = flow->local,
                                      .table = remote_address_of(end.table_region)})};
}

Result<void> SendSide::finish(ConnectionId connection, std::span<const uint8_t> bytes,
                              Instant now) {
  SendEnd& end = ends_[connection];
  ASSIGN_OR_RETURN(const auto answer, decode_answer(bytes));
  MessageFlow& flow = *end.flow;
  if (flow.state == FlowState::kJoining) {
    if (auto joined = flows_.join(flow, answer.end, now); !joined) {
      break_flow(flow, MessageFailure::kPeerProtocol);
      return joined;
    }
    match_due_ = true;  // the peer may have written already
  } else if (flow.state == FlowState::kBroken ||
             !std::ranges::equal(flow.remote.data.view(), answer.end.data.view())) {
    return flow_ended();
  }
  if (answer.eager > end.eager) {
    return pacecar::fail(
        ErrorCode::kPeer,
        "the peer's answer allows larger eager messages than were offered: run the same version of "
        "Pacecar on both sides");
  }
  end.remote_table = answer.table;
  end.queue.enable_eager(EagerCells(answer.eager), cells(end), end.table_region.key,
                         {answer.table.address + sizeof(ReceiveTable), answer.table.key});
  end.open = true;
  return {};
}

bool SendSide::suspect_flow(ConnectionId connection, ErrorCode failure) {
  const SendEnd& end = ends_[connection];
  const bool ended = end.shares && failure == ErrorCode::kStale;
  end.flow->suspected = end.flow->suspected || ended;
  return ended || end.flow->state == FlowState::kBroken;
}

void SendSide::close(ConnectionId connection, Instant now) {
  SendEnd& end = ends_[connection];
  end.lingers = end.queue.pending() == 0;
  end.queue.drop_requests();
  end.closed = true;
  matching_.remove(connection);
  if (!end.lingers) end.flow->posting.remove(end.number);
  if (!end.open) return release(end, now);  // the peer finds out by itself
  attended_.add(connection);
  send_close(end);
}

void SendSide::send_close(SendEnd& end) {
  if (end.lingers && !end.queue.all_arrived()) return;
  post_close(end, end.queue.arrived());
}

void SendSide::break_flow(MessageFlow& flow, MessageFailure failure) {
  flows_.end(flow);
  for (const ConnectionId id : flow.numbered.all()) {
    if (id != FlowConnections::kNone) fail(ends_[id], failure);
  }
}

void SendSide::fail(SendEnd& end, MessageFailure failure) {
  if (end.failed()) return;
  end.failure = failure;
  end.lingers = false;
  end.queue.fail(failure);
  matching_.remove(end.id);
  end.flow->posting.remove(end.number);
}

bool SendSide::send(ConnectionId connection, MessageSend& send) {
  SendEnd& end = ends_[connection];
  PACECAR_CHECK(!send.operation.put || end.eager == 0);
  if (end.failed()) {
    send.failure = end.failure;
    send.set(MessageRequest::State::kFailed);
    return true;
  }
  if (!end.queue.post(send)) return false;
  matching_.add(connection);
  attended_.add(connection);
  match_due_ = true;
  return true;
}

void SendSide::forget_memory(uint32_t key) {
  for_attended([key](SendEnd& end) { end.queue.forget_memory(key); });
}

bool SendSide::write_note(ConnectionId connection, LaneNote note) {
  SendEnd& end = ends_[connection];
  note.next = end.queue.arrived();
  return end.open && post_note(end, note);
}

LaneSight SendSide::lane(ConnectionId connection) const {
  const SendEnd& end = ends_[connection];
  return {.writes = end.queue.outstanding(),
          .life = end.queue.moves() + end.flow->stats.acked + end.notes_done,
          .closed = CloseWord::closed(peer_close(end)),
          .failure = end.failure};
}

uint64_t SendSide::completed_by_peer(ConnectionId connection) const {
  return CloseWord::count(peer_close(ends_[connection]));
}

void SendSide::hold(ConnectionId connection, bool held) {
  SendEnd& end = ends_[connection];
  end.held = held;
  if (held || end.failed()) return;
  matching_.add(connection);
  post_later(end);
  match_due_ = true;
}

void SendSide::renew(ConnectionId connection, uint64_t next_slot) {
  SendEnd& end = ends_[connection];
  PACECAR_CHECK(end.held);
  end.queue.renew(next_slot);
}

bool SendSide::match(Instant now) {
  bool granted = false;
  for (size_t left = matching_.size(); left > 0; --left) {
    SendEnd& end = ends_[matching_.take()];
    if (!end.open || end.held || end.failed()) continue;
    MessageFlow& flow = *end.flow;
    uint64_t newest_grant = 0;
    const auto match = end.queue.match(*end.table, rates_.write_bytes(flow),
                                       [&newest_grant](uint64_t grant) { newest_grant = grant; });
    if (newest_grant != 0) {
      granted = true;
      rates_.on_grant(flow, newest_grant, now);
    }
    if (match == SendQueue::Match::kProtocolError) {
      ++counters_.protocol_errors;
      fail(end, MessageFailure::kPeerProtocol);
      continue;
    }
    post_later(end);
    if (!end.queue.waiting()) continue;
    matching_.add(end.id);
    want_slots(end);
  }
  return granted;
}

// Asks for slots if a send needs one: a receiver whose last message was small advertises late.
void SendSide::want_slots(SendEnd& end) {
  const uint64_t wanted = end.queue.wanted_slots();
  if (wanted <= end.wanted) return;
  end.table->own_wanted = wanted;
  const bool posted =
      control_.post(*end.flow, table_write(end, WorkId::Kind::kWant, &end.table->own_wanted,
                                           sizeof(uint64_t), offsetof(ReceiveTable, peer_wanted)));
  if (posted) {
    end.wanted = wanted;
  } else {
    match_due_ = true;  // no room: again at the next poll
  }
}

// The connections of a flow take turns until its queue pair is full. Then they wait for a
// completion, so that a send does not cost as much as there are connections.
Bytes SendSide::post() {
  data_posted_to_ = nullptr;
  more_to_post_ = false;
  Bytes most = 0;
  for (size_t left = posting_.size(); left > 0; --left) {
    MessageFlow* const flow = flows_.all().find(posting_.take());
    if (flow == nullptr) continue;
    for (size_t turns = flow->posting.size(); turns > 0 && !flow->full; --turns) {
      SendEnd& end = ends_[flow->numbered.at(flow->posting.take())];
      if (!end.held) most = std::max(most, post_writes(end));
    }
    list(*flow);
  }
  return most;
}

Bytes SendSide::post_writes(SendEnd& end) {
  MessageFlow& flow = *end.flow;
  Bytes bytes = 0;
  WorkRequest write;
  int posted = 0;
  for (; end.queue.next_write(end.number, &write); ++posted) {
    write.id = WorkId{WorkId::Kind::kData, end.id, static_cast<uint32_t>(write.id)}.pack();
    const bool turn_is_over = posted == kWritesPerTurn;
    if (turn_is_over || nic_.post(flow.data, {&write, 1}) == 0) {
      more_to_post_ |= turn_is_over;
      flow.posting.add(end.number);
      flow.full = !turn_is_over && flow.writes + static_cast<uint32_t>(posted) > 0;
      break;
    }
    bytes += end.queue.on_posted();
  }
  if (posted == 0) return 0;
  data_posted_to_ = &flow.peer;
  counters_.bytes_sent += bytes;
  rates_.on_writes_posted(flow, static_cast<uint32_t>(posted), bytes);
  return bytes;
}

void SendSide::post_later(const SendEnd& end) {
  end.flow->posting.add(end.number);
  list(*end.flow);
}

void SendSide::list(const MessageFlow& flow) {
  if (!flow.full && !flow.posting.empty()) posting_.add(flow.id);
}

void SendSide::on_write_done(ConnectionId connection, uint32_t send, CompletionStatus status) {
  SendEnd& end = ends_[connection];
  rates_.on_write_done(*end.flow);
  end.flow->full = false;
  list(*end.flow);
  const uint32_t done = end.queue.on_write_done(send, status);
  if (status == CompletionStatus::kOk) counters_.messages_sent += done;
  if (done > 0 && end.queue.waiting()) match_due_ = true;  // a cell is free
  const bool posts = !end.failed() && (!end.closed || end.lingers);
  if (posts && end.queue.cannot_end()) {
    post_close(end, end.queue.arrived());
    fail(end, MessageFailure::kMemoryGone);
  } else if (posts && end.queue.gives_up()) {
    post_later(end);
  }
  if (end.closed) send_close(end);
}

void SendSide::do_housekeeping(Instant now) {
  visit_attended([&](SendEnd& end) {
    const uint64_t word = peer_close(end);
    if (CloseWord::closed(word) && !end.peer_closed) {
      end.peer_closed = true;
      end.queue.on_peer_closed(CloseWord::count(word));
      fail(end, MessageFailure::kPeerClosed);
    }
    if (end.closed) send_close(end);
    return supervise(end, end.queue.outstanding() > 0, false, now);
  });
}

std::optional<Stall> SendSide::stall(ConnectionId connection) const {
  const SendEnd& end = ends_[connection];
  if (!end.progress.stalled()) return std::nullopt;
  return Stall{.lasted = end.progress.stalled_for(now_),
               .connections = 1,
               .requests = end.queue.requests(),
               .writes = end.queue.outstanding(),
               .awaits_peer = end.awaits_buffer(),
               .explanation = rates_.explain(*end.flow, now_),
               .rtt = end.flow->rtt,
               .silence = silence_of(*end.flow),
               .peer_address = end.flow->peer_address};
}

}  // namespace pacecar
