// Housekeeping of Messenger: releases connections and flows that have ended, and detects dead
// peers.
#include "transport/message/flow.h"
#include "transport/message/messenger.h"

namespace pacecar {
namespace {

constexpr Duration kHousekeeping = Duration::from_ms(5);

}  // namespace

void Messenger::do_housekeeping(Instant now) {
  next_housekeeping_ = now + kHousekeeping;
  for (const FlowId id : open_flows_) {
    flows_[id].active = false;
  }
  for (size_t left = open_senders_.size(); left > 0; --left) {
    const ConnectionId id = open_senders_.take();
    if (do_housekeeping(senders_[id], now)) open_senders_.add(id);
  }
  for (size_t left = open_receivers_.size(); left > 0; --left) {
    const ConnectionId id = open_receivers_.take();
    if (do_housekeeping(receivers_[id], now)) open_receivers_.add(id);
  }
  bool busy = !open_senders_.empty() || !open_receivers_.empty();
  for (size_t i = open_flows_.size(); i-- > 0;) {  // backwards: a flow that ends leaves the list
    if (do_housekeeping(flows_[open_flows_[i]], now)) busy = true;
  }
  housekeeping_due_ = busy;
}

bool Messenger::do_housekeeping(Sender& sender, Instant now) {
  Flow& flow = *sender.flow;
  const uint64_t word = load_polled(sender.table->peer_close);
  if (CloseWord::closed(word) && !sender.peer_closed) {
    sender.peer_closed = true;
    sender.queue.on_peer_closed(CloseWord::count(word));
    fail_connection(sender, MessageFailure::kPeerClosed);
  }
  if (sender.closed) send_close(sender);
  const bool agreed = sender.close_sent && !sender.close_outstanding && sender.peer_closed;
  const bool under_way = sender.queue.outstanding() > 0 || sender.notes_outstanding > 0;
  const bool over = (agreed && !under_way) || flow.state == Flow::State::kBroken;
  if (sender.closed && over) {
    release(sender, now);
    return false;
  }
  const bool waits = !sender.queue.idle() && sender.failure == MessageFailure::kNone;
  if (sender.failure == MessageFailure::kNone) {
    watch(sender.progress, waits && !sender.closed, sender.queue.moves(), now);
  }
  const bool busy = sender.closed || waits;
  if (busy) flow.active = true;
  return busy;
}

// True while completions of what the peer sent before it closed may be outstanding.
bool Messenger::look_for_close(Receiver& receiver, Instant now) {
  const uint64_t word = load_polled(receiver.table->peer_close);
  const bool closing = CloseWord::closed(word) && !receiver.peer_closed;
  if (closing && receiver.close_due == Instant::never()) {
    receiver.close_due = now + config_.silence_limit;
  }
  // Messages that arrived before the close still count: their completions may not be polled yet.
  if (closing && (receiver.queue.moves() >= CloseWord::count(word) || now >= receiver.close_due)) {
    receiver.peer_closed = true;
    fail_connection(receiver, MessageFailure::kPeerClosed);
  }
  return closing && !receiver.peer_closed;
}

bool Messenger::do_housekeeping(Receiver& receiver, Instant now) {
  const Flow& flow = *receiver.flow;
  const bool closing = look_for_close(receiver, now);
  if (receiver.closed) send_close(receiver);
  const bool agreed = receiver.close_sent && !receiver.close_outstanding && receiver.peer_closed;
  const bool under_way = receiver.slot_writes_outstanding > 0 || receiver.notes_outstanding > 0;
  const bool over = (agreed && !under_way) || flow.state == Flow::State::kBroken;
  if (receiver.closed && over) {
    release(receiver, now);
    return false;
  }
  const bool waits = !receiver.queue.idle() && receiver.failure == MessageFailure::kNone;
  if (receiver.failure == MessageFailure::kNone) {
    watch(receiver.progress, waits && !receiver.closed, receiver.queue.moves(), now);
  }
  const bool busy = receiver.closed || waits || closing;
  if (busy) receiver.flow->active = true;
  return busy;
}

void Messenger::watch(Progress& progress, bool waits, uint64_t moves, Instant now) {
  if (!waits || !progress.waits || moves != progress.moves) {
    if (progress.stalled) ++stall_changes_;
    progress = {moves, now, waits, false};
  } else if (!progress.stalled && now - progress.since >= kStallLimit) {
    progress.stalled = true;
    ++stall_changes_;
  }
}

// A flow with pending requests writes its word at least every fifth of the silence limit: if the
// peer is dead, the write is not acknowledged and the flow breaks.
bool Messenger::do_housekeeping(Flow& flow, Instant now) {
  if (flow.connections == 0) {  // leaving, or broken since
    if (now >= flow.leave_at || flow.state == Flow::State::kBroken) destroy_flow(flow);
    return true;
  }
  if (flow.state != Flow::State::kOpen) return false;
  const bool quiet = now - flow.last_word >= config_.silence_limit / 5;
  if (flow.sending) {
    announce(flow, now);
    decide(flow, now);  // a grant may have expired
    flow.limits.look(now, flow.controller->explain(now), flow.stats);
  }
  if (flow.active && quiet) post_word(flow, now);
  return flow.active;
}

}  // namespace pacecar
