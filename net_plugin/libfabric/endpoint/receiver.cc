#include "net_plugin/libfabric/endpoint/receiver.h"

#include <algorithm>
#include <array>

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

PendingCompletion Receiver::completion_of(const Frame& frame, const Receive& receive,
                                          Peer& from) const {
  PendingCompletion pending;
  Completion& completion = pending.completion;
  const uint64_t room = receive.local.bytes();
  completion.op_context = receive.context;
  completion.flags = FI_RECV | ((frame.flags & kTagged) != 0 ? FI_TAGGED : FI_MSG);
  completion.len = std::min(frame.length, room);
  completion.tag = frame.tag;
  completion.source = state_.peers.source_of(from);
  if (receive.local.count > 0) completion.buf = receive.local.pieces[0].data;
  if ((frame.flags & kHasData) != 0) {
    completion.flags |= FI_REMOTE_CQ_DATA;
    completion.data = frame.data;
  }
  if (frame.length > room) {
    completion.fail(FI_ETRUNC, "the message is longer than its buffer");
    completion.olen = frame.length - room;
  }
  pending.queued_on_success = state_.completions.receive().wants(receive.flags);
  pending.shared = receive.shared;
  return pending;
}

// Takes a matched receive; from a buffer for several messages (FI_MULTI_RECV), one message's part.
Receive Receiver::take_receive(Messages& messages, Messages::Receives::iterator at,
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

Receiver::Unexpected Receiver::take_unexpected(Messages& messages,
                                               Messages::Messages::iterator at) {
  unexpected_bytes_ -= frame_bytes(at->message.payload.size());
  return messages.take(at);
}

FrameResult Receiver::on_message(Peer& peer, const FrameView& view) {
  const Frame& frame = view.frame;
  const size_t bytes = view.payload.size();
  const bool sound = frame.kind == FrameKind::kMessage
                         ? bytes == frame.length
                         : bytes <= kMaxSegments * sizeof(RemoteSegment);
  if (!sound) return FrameResult::kProtocolError;
  const bool with_tag = (frame.flags & kTagged) != 0;
  Messages& messages = with_tag ? tagged_ : untagged_;
  const uint64_t tag = with_tag ? frame.tag : 0;
  const auto at = messages.receive_for(peer.number, tag);
  if (at == messages.receives().end()) {
    if (unexpected_bytes_ + frame_bytes(bytes) > kMaxUnexpectedBytes) return FrameResult::kNoRoom;
    unexpected_bytes_ += frame_bytes(bytes);
    messages.add_unexpected(peer.number, tag,
                            {&peer, frame, {view.payload.begin(), view.payload.end()}});
    return FrameResult::kHandled;
  }
  if (!state_.can_receive()) return FrameResult::kNoRoom;
  receive_message(peer, view, take_receive(messages, at, frame.length));
  return FrameResult::kHandled;
}

void Receiver::receive_message(Peer& peer, const FrameView& view, const Receive& receive) {
  const Frame& frame = view.frame;
  PendingCompletion pending = completion_of(frame, receive, peer);
  if (frame.kind == FrameKind::kOffer) {
    return receive_offered(peer, view, receive, std::move(pending));
  }
  if (const auto copied = receive.local.copy_in(view.payload); !copied) {
    pending.completion.fail(FI_EIO, copied.error().message);
  }
  state_.completions.report(std::move(pending));
  if ((frame.flags & kWantsDone) != 0) peer.reply_status(frame.id, Status::kOk);
}

void Receiver::receive_offered(Peer& peer, const FrameView& view, const Receive& receive,
                               PendingCompletion pending) {
  const uint64_t length = std::min<uint64_t>(view.frame.length, receive.local.bytes());
  Operation& operation = state_.operations.begin(peer, Operation::Kind::kReceive, receive.local,
                                                 Bounce::into(receive.local, length));
  operation.pending = std::move(pending);
  operation.request = view.frame;
  operation.length = length;
  bulk_.fetch(operation, view);
}

// Completes the send of a message that is discarded.
void Receiver::discard(const Unexpected& message) {
  if (message.frame.kind == FrameKind::kOffer) {
    receive_offered(*message.peer, {message.frame, {}}, Receive(), PendingCompletion());
  } else if ((message.frame.flags & kWantsDone) != 0) {
    message.peer->reply_status(message.frame.id, Status::kOk);
  }
}

ssize_t Receiver::post(bool with_tag, const Pattern& pattern, const Receive& receive) {
  Messages& messages = with_tag ? tagged_ : untagged_;
  if (messages.receives().size() >= max_posted_) state_.domain.progress();
  if (messages.receives().size() >= max_posted_ || !state_.can_receive()) return -FI_EAGAIN;
  messages.post(pattern, receive);
  const auto mine = std::prev(messages.receives().end());
  // The receive takes unexpected messages that match it.
  while (true) {
    const auto at = messages.message_for(pattern);
    if (at == messages.messages().end()) return 0;
    const Unexpected message = take_unexpected(messages, at);
    if (message.cannot_come()) continue;
    const Receive part = take_receive(messages, mine, message.frame.length);
    receive_message(*message.peer, message.view(), part);
    if (part.shared == nullptr || part.shared->used_up) return 0;
  }
}

// Reports the message that a receive with this pattern would match.
ssize_t Receiver::peek(const Pattern& pattern, const Receive& receive) {
  state_.domain.progress();
  if (!state_.can_receive()) return -FI_EAGAIN;
  const auto at = tagged_.message_for(pattern);
  if (at == tagged_.messages().end()) {
    PendingCompletion none = without_message(receive.context, true, pattern.tag, FI_ENOMSG,
                                             "no such message has arrived yet");
    none.counted = false;
    state_.completions.report(std::move(none));
    return 0;
  }
  PendingCompletion pending = completion_of(at->message.frame, receive, *at->message.peer);
  pending.completion.err = 0;
  pending.completion.len = at->message.frame.length;
  pending.counted = false;
  if ((receive.flags & FI_CLAIM) != 0) {
    at->claimed_by = receive.context;
  } else if ((receive.flags & FI_DISCARD) != 0) {
    discard(take_unexpected(tagged_, at));
  }
  state_.completions.report(std::move(pending));
  return 0;
}

ssize_t Receiver::post_claimed(const Receive& receive) {
  if (!state_.can_receive()) return -FI_EAGAIN;
  const auto at = tagged_.claimed(receive.context);
  if (at == tagged_.messages().end()) return -FI_ENOMSG;
  const Unexpected message = take_unexpected(tagged_, at);
  if (message.cannot_come()) return -FI_ENOMSG;
  if ((receive.flags & FI_DISCARD) == 0) {
    receive_message(*message.peer, message.view(), receive);
    return 0;
  }
  PendingCompletion pending = completion_of(message.frame, receive, *message.peer);
  pending.completion.err = 0;
  discard(message);
  state_.completions.report(std::move(pending));
  return 0;
}

ssize_t Receiver::cancel(void* context) {
  bool found = false;
  const auto is_first = [&](const Messages::Posted& posted) {
    return !found && (found = posted.receive.context == context);
  };
  fail_receives(is_first, FI_ECANCELED, "the receive was cancelled");
  return found ? 0 : -FI_ENOENT;
}

void Receiver::fail_receives_from(const Peer& peer, int error, const std::string& why) {
  const auto is_from = [&](const Messages::Posted& one) {
    return one.pattern.source == peer.number;
  };
  fail_receives(is_from, error, why);
}

void Receiver::forget(MemoryRegion& region) {
  const auto is_of_gpu = [&](Messages::Posted& posted) {
    return posted.receive.local.forget(region) && region.device != nullptr;
  };
  fail_receives(is_of_gpu, FI_EINVAL, "its memory was closed before a message came");
}

template <typename Concerned>
void Receiver::fail_receives(Concerned concerned, int error, const std::string& why) {
  for (Messages* messages : {&tagged_, &untagged_}) {
    for (auto at = messages->receives().begin(); at != messages->receives().end();) {
      const auto posted = at++;
      if (!concerned(*posted)) continue;
      const uint64_t tag = posted->pattern.tag;
      const Receive receive = messages->take(posted);
      PendingCompletion pending =
          without_message(receive.context, messages == &tagged_, tag, error, why);
      SharedBuffer* const shared = receive.shared.get();
      if (shared != nullptr) pending.completion.flags |= FI_MULTI_RECV;
      if (shared == nullptr || shared->incomplete == 0) {
        state_.completions.report(std::move(pending));
      } else {  // messages may still be written into the buffer
        shared->used_up = true;
        shared->last = std::make_unique<PendingCompletion>(std::move(pending));
      }
    }
  }
}

bool Receiver::knows(const Peer& peer) {
  return std::ranges::any_of(std::array{&tagged_, &untagged_}, [&](Messages* messages) {
    return std::ranges::count(messages->messages(), peer.number, &Messages::Arrived::source) > 0 ||
           std::ranges::any_of(messages->receives(), [&](const Messages::Posted& one) {
             return one.pattern.source == peer.number;
           });
  });
}

void Receiver::forget_messages_of(const Peer& peer) {
  for (Messages* messages : {&tagged_, &untagged_}) {
    for (auto at = messages->messages().begin(); at != messages->messages().end();) {
      const auto arrived = at++;
      if (arrived->source != peer.number) continue;
      Frame& frame = arrived->message.frame;
      frame.flags &= static_cast<uint8_t>(~kWantsDone);  // it gets no kDone
      if (frame.kind == FrameKind::kOffer) take_unexpected(*messages, arrived);
    }
  }
}

}  // namespace pacecar::fabric
