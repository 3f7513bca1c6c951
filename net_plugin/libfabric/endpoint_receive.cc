// Receives: tag matching, unexpected messages, clear-to-send, peek and claim.
#include <algorithm>
#include <cstring>

#include "net_plugin/libfabric/endpoint.h"

namespace pacecar::fabric {
namespace {

// The completion of a receive or a peek that gets no message.
PendingCompletion without_message(void* context, bool tagged, uint64_t tag, int error,
                                  const std::string& why) {
  PendingCompletion pending;
  pending.completion.op_context = context;
  pending.completion.flags = FI_RECV | (tagged ? FI_TAGGED : FI_MSG);
  pending.completion.tag = tag;
  pending.completion.fail(error, why);
  return pending;
}

}  // namespace

PendingCompletion Endpoint::receive_completion(const Frame& frame, const Receive& receive,
                                               Peer& from) {
  PendingCompletion pending;
  Completion& completion = pending.completion;
  const uint64_t room = receive.local.bytes();
  completion.op_context = receive.context;
  completion.flags = FI_RECV | ((frame.flags & kTagged) != 0 ? FI_TAGGED : FI_MSG);
  completion.len = std::min(frame.length, room);
  completion.tag = frame.tag;
  completion.source = source_of(from);
  if (receive.local.count > 0) completion.buf = receive.local.pieces[0].data;
  if ((frame.flags & kHasData) != 0) {
    completion.flags |= FI_REMOTE_CQ_DATA;
    completion.data = frame.data;
  }
  if (frame.length > room) {
    completion.fail(FI_ETRUNC, "the message is longer than its buffer");
    completion.olen = frame.length - room;
  }
  pending.queued_on_success = !rx_selective_ || (receive.flags & FI_COMPLETION) != 0;
  pending.shared = receive.shared;
  return pending;
}

// Ends a posted receive with an error.
void Endpoint::fail_receive(Messages& messages, Messages::Receives::iterator at, int error,
                            const std::string& why) {
  const uint64_t tag = at->pattern.tag;
  const Receive receive = messages.take(at);
  PendingCompletion pending =
      without_message(receive.context, &messages == &tagged_, tag, error, why);
  report(pending, rx_queue_);
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

Unexpected Endpoint::take_unexpected(Messages& messages, Messages::Messages::iterator at) {
  unexpected_bytes_ -= frame_bytes(at->message.payload.size());
  return messages.take(at);
}

Endpoint::FrameResult Endpoint::on_message(Peer& peer, const FrameView& view) {
  const Frame& frame = view.frame;
  const bool whole = frame.kind == FrameKind::kMessage;
  if (whole && frame.length != view.payload.size()) return FrameResult::kProtocolError;
  if (!whole && view.payload.size() > kMaxSegments * sizeof(RemoteSegment)) {
    return FrameResult::kProtocolError;
  }
  const bool with_tag = (frame.flags & kTagged) != 0;
  Messages& messages = with_tag ? tagged_ : untagged_;
  const uint64_t tag = with_tag ? frame.tag : 0;
  const auto at = messages.receive_for(peer.number, tag);
  if (at == messages.receives().end()) {
    const size_t bytes = frame_bytes(view.payload.size());
    if (unexpected_bytes_ + bytes > kMaxUnexpectedBytes) return FrameResult::kNoRoom;
    unexpected_bytes_ += bytes;
    messages.add_unexpected(peer.number, tag,
                            {&peer, frame, {view.payload.begin(), view.payload.end()}});
    return FrameResult::kHandled;
  }
  if (receives_full() || operations_.full()) return FrameResult::kNoRoom;
  receive_message(peer, view, take_receive(messages, at, frame.length));
  return FrameResult::kHandled;
}

void Endpoint::receive_message(Peer& peer, const FrameView& view, const Receive& receive) {
  const Frame& frame = view.frame;
  PendingCompletion pending = receive_completion(frame, receive, peer);
  if (frame.kind == FrameKind::kOffer) {
    return receive_offered(peer, view, receive, std::move(pending));
  }
  if (const auto copied = receive.local.copy_in(view.payload); !copied) {
    pending.completion.fail(FI_EIO, copied.error().message);
  }
  report(pending, rx_queue_);
  if ((frame.flags & kWantsDone) != 0) reply_status(peer, frame.id, Status::kOk);
}

void Endpoint::receive_offered(Peer& peer, const FrameView& view, const Receive& receive,
                               PendingCompletion pending) {
  const uint64_t length = std::min<uint64_t>(view.frame.length, receive.local.bytes());
  Operation& operation =
      begin(peer, Operation::Kind::kReceive, receive.local, Bounce::into(receive.local, length));
  operation.pending = std::move(pending);
  operation.request = view.frame;
  operation.length = length;
  fetch(operation, view);
}

// Replies to an offer with the segments to put into: as many bytes as there is room for.
void Endpoint::clear_to_send(Operation& operation) {
  Peer& peer = *operation.peer;
  const uint64_t offer = operation.request.id;
  const auto segments = describe_segments(operation);
  if (!segments && operation.kind == Operation::Kind::kServeWrite) {
    release(operation);
    return reply_status(peer, offer, Status::kNoAccess);
  }
  if (!segments) {
    operation.length = 0;
    operation.pending.completion.fail(FI_ENOMEM, "memory cannot be registered: see the log");
  }
  const auto* const bytes = reinterpret_cast<const uint8_t*>(operation.segments.data());
  reply(peer,
        {.kind = FrameKind::kClearToSend,
         .length = operation.length,
         .id = offer,
         .address = operation.number},
        {bytes, segments.value_or(0) * sizeof(RemoteSegment)});
}

// Completes the send of a message that is discarded.
void Endpoint::discard(const Unexpected& message) {
  if (message.frame.kind == FrameKind::kOffer) {
    receive_offered(*message.peer, {message.frame, {}}, Receive(), PendingCompletion());
  } else if ((message.frame.flags & kWantsDone) != 0) {
    reply_status(*message.peer, message.frame.id, Status::kOk);
  }
}

ssize_t Endpoint::post(bool with_tag, const Pattern& pattern, const Receive& receive) {
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
    const Unexpected message = take_unexpected(messages, at);
    const Receive part = take_receive(messages, mine, message.frame.length);
    receive_message(*message.peer, message.view(), part);
    if (part.shared == nullptr || part.shared->used_up) break;
    mine = posted();
  }
  return 0;
}

// Reports the message that a receive with this pattern would match.
ssize_t Endpoint::peek(const Pattern& pattern, const Receive& receive) {
  domain_.progress();
  if (receives_full() || operations_.full()) return -FI_EAGAIN;
  const auto at = tagged_.message_for(pattern);
  if (at == tagged_.messages().end()) {
    PendingCompletion none = without_message(receive.context, true, pattern.tag, FI_ENOMSG,
                                             "no such message has arrived yet");
    none.counted = false;
    report(none, rx_queue_);
    return 0;
  }
  PendingCompletion pending = receive_completion(at->message.frame, receive, *at->message.peer);
  pending.completion.err = 0;
  pending.completion.len = at->message.frame.length;
  pending.counted = false;
  if ((receive.flags & FI_CLAIM) != 0) {
    at->claimed_by = receive.context;
  } else if ((receive.flags & FI_DISCARD) != 0) {
    discard(take_unexpected(tagged_, at));
  }
  report(pending, rx_queue_);
  return 0;
}

ssize_t Endpoint::post_claimed(const Receive& receive) {
  if (receives_full() || operations_.full()) return -FI_EAGAIN;
  const auto at = tagged_.claimed(receive.context);
  if (at == tagged_.messages().end()) return -FI_ENOMSG;
  const Unexpected message = take_unexpected(tagged_, at);
  if ((receive.flags & FI_DISCARD) != 0) {
    PendingCompletion pending = receive_completion(message.frame, receive, *message.peer);
    pending.completion.err = 0;
    discard(message);
    report(pending, rx_queue_);
  } else {
    receive_message(*message.peer, message.view(), receive);
  }
  return 0;
}

}  // namespace pacecar::fabric
