// Receives: tag matching, unexpected messages, clear-to-send, peek and claim.
#include <algorithm>
#include <cstring>

#include "net_plugin/libfabric/endpoint.h"

namespace pacecar::fabric {

Endpoint::PendingCompletion Endpoint::receive_completion(const Frame& frame, const Receive& receive,
                                                         PeerId from) {
  PendingCompletion pending;
  Completion& completion = pending.completion;
  const uint64_t room = receive.local.bytes();
  completion.context = receive.context;
  completion.flags = FI_RECV | ((frame.flags & kTagged) != 0 ? FI_TAGGED : FI_MSG);
  completion.length = std::min(frame.length, room);
  completion.tag = frame.tag;
  completion.source = source_of(*peers_[from]);
  if (receive.local.count > 0) completion.buffer = receive.local.pieces[0].data;
  if ((frame.flags & kHasData) != 0) {
    completion.flags |= FI_REMOTE_CQ_DATA;
    completion.data = frame.data;
  }
  if (frame.length > room) {
    completion.error = FI_ETRUNC;
    completion.overflow = frame.length - room;
    completion.why = "the message is longer than its buffer";
  }
  pending.queued_on_success = !rx_selective_ || (receive.flags & FI_COMPLETION) != 0;
  pending.counter_event = FI_RECV;
  return pending;
}

// Ends a posted receive with an error.
void Endpoint::fail_receive(Messages& messages, Messages::Receives::iterator at, int error,
                            const std::string& why) {
  const uint64_t tag = at->pattern.tag;
  const Receive receive = messages.take(at);
  PendingCompletion pending;
  pending.completion.context = receive.context;
  pending.completion.flags = FI_RECV | (&messages == &tagged_ ? FI_TAGGED : FI_MSG);
  pending.completion.tag = tag;
  pending.counter_event = FI_RECV;
  report_error(pending, rx_queue_, error, why);
}

// Takes a matched receive. Of a buffer for several messages (FI_MULTI_RECV): the part for this one.
Receive Endpoint::take_receive(Messages& messages, Messages::Receives::iterator at,
                               uint64_t length) {
  Receive& posted = at->receive;
  if (posted.shared == nullptr) return messages.take(at);
  Receive part = posted;
  Piece& room = posted.local.pieces[0];
  const size_t taken = std::min<uint64_t>(length, room.size);
  part.local.pieces[0].size = taken < length ? room.size : taken;
  room.data += taken;
  room.size -= taken;
  ++part.shared->incomplete;
  if (room.size >= std::max<size_t>(min_multi_receive, 1)) return part;
  part.shared->used_up = true;
  messages.take(at);
  return part;
}

Endpoint::FrameResult Endpoint::on_message(PeerId number, const FrameView& view) {
  const Frame& frame = view.frame;
  const bool whole = frame.kind == FrameKind::kMessage;
  if (whole && frame.length != view.payload.size()) return FrameResult::kProtocolError;
  if (!whole && view.payload.size() > kMaxSegments * sizeof(RemoteSegment)) {
    return FrameResult::kProtocolError;
  }
  Messages& messages = messages_of(frame);
  const uint64_t tag = (frame.flags & kTagged) != 0 ? frame.tag : 0;
  const auto at = messages.receive_for(number, tag);
  if (at == messages.receives().end()) {
    if (unexpected_bytes_ + frame_bytes(view.payload.size()) > kMaxUnexpectedBytes)
      return FrameResult::kNoRoom;
    unexpected_bytes_ += frame_bytes(view.payload.size());
    messages.keep(number, tag, {frame, {view.payload.begin(), view.payload.end()}});
    return FrameResult::kHandled;
  }
  if (receives_full() || operations_.full()) return FrameResult::kNoRoom;
  const Receive receive = take_receive(messages, at, frame.length);
  receive_message(number, frame, view.payload, receive);
  return FrameResult::kHandled;
}

void Endpoint::receive_message(PeerId number, const Frame& frame, std::span<const uint8_t> payload,
                               const Receive& receive) {
  PendingCompletion pending = receive_completion(frame, receive, number);
  if (frame.kind == FrameKind::kOffer) {
    return receive_offered(number, frame, payload, receive, std::move(pending));
  }
  if (const auto copied = copy_in(receive.local, payload); !copied) {
    pending.completion.error = FI_EIO;
    pending.completion.why = copied.error().message;
  }
  if (receive.shared != nullptr && --receive.shared->incomplete == 0 && receive.shared->used_up) {
    pending.completion.flags |= FI_MULTI_RECV;
  }
  report(pending, rx_queue_);
  if ((frame.flags & kWantsDone) != 0) reply_status(number, frame.id, Status::kOk);
}

void Endpoint::receive_offered(PeerId number, const Frame& frame, std::span<const uint8_t> payload,
                               const Receive& receive, PendingCompletion pending) {
  const auto [id, operation] = operations_.take();
  operation->kind = Operation::Kind::kReceive;
  operation->peer = number;
  operation->pending = std::move(pending);
  operation->local = receive.local;
  operation->shared = receive.shared;
  operation->request = frame;
  operation->length = std::min<uint64_t>(frame.length, receive.local.bytes());
  use_bounce(*operation, std::move(*bounce_for(receive.local, operation->length, false)));
  if (can_read_directly(*operation, {frame, payload})) return start_direct_read(id);
  clear_to_send(id);
}

// Replies to an offer with the segments to put into: as many bytes as there is room for.
void Endpoint::clear_to_send(uint64_t number) {
  Operation& operation = *operations_.find(number);
  const PeerId peer = operation.peer;
  const uint64_t offer = operation.request.id;
  const auto segments = describe_segments(operation, domain_.nic(), operation.length);
  if (!segments && operation.kind == Operation::Kind::kServeWrite) {
    release(number, operation);
    return reply_status(peer, offer, Status::kNoAccess);
  }
  if (!segments) {
    operation.length = 0;
    operation.pending.completion.error = FI_ENOMEM;
    operation.pending.completion.why = "memory cannot be registered: see the log";
  }
  const auto* const bytes = reinterpret_cast<const uint8_t*>(operation.segments.data());
  reply(
      peer,
      {.kind = FrameKind::kClearToSend, .length = operation.length, .id = offer, .address = number},
      {bytes, segments.value_or(0) * sizeof(RemoteSegment)});
}

// Completes the send of a message that is discarded.
void Endpoint::discard(PeerId number, const Unexpected& message) {
  if (message.frame.kind == FrameKind::kOffer) {
    receive_offered(number, message.frame, {}, Receive(), PendingCompletion());
  } else if ((message.frame.flags & kWantsDone) != 0) {
    reply_status(number, message.frame.id, Status::kOk);
  }
}

ssize_t Endpoint::post(bool with_tag, const Pattern& pattern, const Receive& receive) {
  if (!enabled()) return -FI_EOPBADSTATE;
  Messages& messages = with_tag ? tagged_ : untagged_;
  if (messages.receives().size() >= rx_size_) {
    domain_.progress();
    if (messages.receives().size() >= rx_size_) return -FI_EAGAIN;
  }
  if (receives_full() || operations_.full()) return -FI_EAGAIN;
  messages.post(pattern, receive);
  // The receive takes unexpected messages that match it. A peer that fails meanwhile may end it.
  const auto posted = [&] {
    auto& receives = messages.receives();
    return std::ranges::find_if(receives, [&](const auto& one) {
      return one.receive.context == receive.context && one.receive.shared == receive.shared;
    });
  };
  auto mine = std::prev(messages.receives().end());
  while (mine != messages.receives().end()) {
    const auto at = messages.message_for(pattern);
    if (at == messages.messages().end()) break;
    const PeerId from = at->source;
    const Unexpected message = messages.take(at);
    unexpected_bytes_ -= frame_bytes(message.payload.size());
    const Receive part = take_receive(messages, mine, message.frame.length);
    receive_message(from, message.frame, message.payload, part);
    if (part.shared == nullptr || part.shared->used_up) break;
    mine = posted();
  }
  return 0;
}

// Reports the message that a receive with this pattern would match.
ssize_t Endpoint::peek(const Pattern& pattern, const Receive& receive) {
  if (!enabled()) return -FI_EOPBADSTATE;
  domain_.progress();
  if (receives_full() || operations_.full()) return -FI_EAGAIN;
  const auto at = tagged_.message_for(pattern);
  if (at == tagged_.messages().end()) {
    PendingCompletion none;
    none.completion.context = receive.context;
    none.completion.flags = FI_RECV | FI_TAGGED;
    none.completion.tag = pattern.tag;
    report_error(none, rx_queue_, FI_ENOMSG, "no such message has arrived yet");
    return 0;
  }
  const PeerId from = at->source;
  PendingCompletion pending = receive_completion(at->message.frame, receive, from);
  pending.completion.error = 0;
  pending.completion.length = at->message.frame.length;
  pending.counter_event = 0;
  if ((receive.flags & FI_CLAIM) != 0) {
    at->claimed_by = receive.context;
  } else if ((receive.flags & FI_DISCARD) != 0) {
    const Unexpected message = tagged_.take(at);
    unexpected_bytes_ -= frame_bytes(message.payload.size());
    discard(from, message);
  }
  report(pending, rx_queue_);
  return 0;
}

ssize_t Endpoint::post_claimed(const Receive& receive) {
  if (!enabled()) return -FI_EOPBADSTATE;
  if (receives_full() || operations_.full()) return -FI_EAGAIN;
  const auto at = tagged_.claimed(receive.context);
  if (at == tagged_.messages().end()) return -FI_ENOMSG;
  const PeerId from = at->source;
  const Unexpected message = tagged_.take(at);
  unexpected_bytes_ -= frame_bytes(message.payload.size());
  if ((receive.flags & FI_DISCARD) != 0) {
    PendingCompletion pending = receive_completion(message.frame, receive, from);
    pending.completion.error = 0;
    discard(from, message);
    report(pending, rx_queue_);
  } else {
    receive_message(from, message.frame, message.payload, receive);
  }
  return 0;
}

}  // namespace pacecar::fabric
