// Messages that come, and the receives that take them.
#include <algorithm>
#include <cstring>

#include "net_plugin/libfabric/endpoint.h"

namespace pacecar::fabric {

Endpoint::Outcome Endpoint::receive_outcome(const Frame& frame, const Receive& receive,
                                            PeerId from) {
  Outcome outcome;
  Completion& completion = outcome.completion;
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
  outcome.completes = !rx_selective_ || (receive.flags & FI_COMPLETION) != 0;
  outcome.counts = FI_RECV;
  return outcome;
}

// Of a buffer for several messages: its next part, which the message fills.
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
  ++part.shared->receiving;
  if (room.size >= std::max<size_t>(min_multi_receive, 1)) return part;
  part.shared->spent = true;
  messages.take(at);
  return part;
}

Endpoint::Taken Endpoint::on_message(PeerId number, const FrameView& view) {
  const Frame& frame = view.frame;
  const bool whole = frame.kind == FrameKind::kMessage;
  if (whole && frame.length != view.payload.size()) return Taken::kNonsense;
  Messages& messages = messages_of(frame);
  const uint64_t tag = (frame.flags & kTagged) != 0 ? frame.tag : 0;
  const auto at = messages.receive_for(number, tag);
  if (at == messages.receives().end()) {
    if (kept_bytes_ + frame_bytes(view.payload.size()) > kMostKept) return Taken::kLater;
    kept_bytes_ += frame_bytes(view.payload.size());
    messages.keep(number, tag, {frame, {view.payload.begin(), view.payload.end()}});
    return Taken::kYes;
  }
  if (receives_full() || operations_.full()) return Taken::kLater;
  const Receive receive = take_receive(messages, at, frame.length);
  receive_message(number, frame, view.payload, receive);
  return Taken::kYes;
}

void Endpoint::receive_message(PeerId number, const Frame& frame, std::span<const uint8_t> payload,
                               const Receive& receive) {
  Outcome outcome = receive_outcome(frame, receive, number);
  if (frame.kind == FrameKind::kOffer) return clear(number, frame, receive, std::move(outcome));
  if (const auto copied = take_in(receive.local, payload); !copied) {
    outcome.completion.error = FI_EIO;
    outcome.completion.why = copied.error().message;
  }
  if (receive.shared != nullptr && --receive.shared->receiving == 0 && receive.shared->spent) {
    outcome.completion.flags |= FI_MULTI_RECV;
  }
  if (outcome.completion.error != 0) {
    tell_error(outcome, rx_queue_, outcome.completion.error, outcome.completion.why);
  } else {
    tell(outcome, rx_queue_);
  }
  if ((frame.flags & kWantsDone) != 0) answer_status(number, frame.id, Status::kOk);
}

// The sender may put, as much as there is room for.
void Endpoint::clear(PeerId number, const Frame& frame, const Receive& receive, Outcome outcome) {
  Peer& peer = *peers_[number];
  const auto [id, operation] = operations_.take();
  operation->kind = Operation::Kind::kReceive;
  operation->peer = number;
  operation->outcome = std::move(outcome);
  operation->local = receive.local;
  operation->shared = receive.shared;
  operation->asks = frame;
  operation->length = std::min<uint64_t>(frame.length, receive.local.bytes());
  go_through(*operation, std::move(*bounce_for(receive.local, operation->length, false)));
  const auto places = describe_places(*operation, peer.frames.inbox->nic(), operation->length);
  if (!places) {
    operation->length = 0;
    operation->outcome.completion.error = FI_ENOMEM;
    operation->outcome.completion.why = "memory cannot be registered: see the log";
  }
  const auto* const bytes = reinterpret_cast<const uint8_t*>(operation->places.data());
  answer(number,
         {.kind = FrameKind::kClear, .length = operation->length, .id = frame.id, .address = id},
         {bytes, places.value_or(0) * sizeof(PlaceFrame)});
}

// The sender's buffer is his again.
void Endpoint::discard(PeerId number, const Unexpected& message) {
  if (message.frame.kind == FrameKind::kOffer) {
    Receive nothing;
    Outcome outcome;
    clear(number, message.frame, nothing, std::move(outcome));
  } else if ((message.frame.flags & kWantsDone) != 0) {
    answer_status(number, message.frame.id, Status::kOk);
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
  // It is the newest: what it takes has come before it. A peer that fails meanwhile may end it.
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
    kept_bytes_ -= frame_bytes(message.payload.size());
    const Receive part = take_receive(messages, mine, message.frame.length);
    receive_message(from, message.frame, message.payload, part);
    if (part.shared == nullptr || part.shared->spent) break;
    mine = posted();
  }
  return 0;
}

// What a receive of this pattern would take is told as if it was received.
ssize_t Endpoint::peek(const Pattern& pattern, const Receive& receive) {
  if (!enabled()) return -FI_EOPBADSTATE;
  domain_.progress();
  if (receives_full() || operations_.full()) return -FI_EAGAIN;
  const auto at = tagged_.message_for(pattern);
  if (at == tagged_.messages().end()) {
    Outcome none;
    none.completion.context = receive.context;
    none.completion.flags = FI_RECV | FI_TAGGED;
    none.completion.tag = pattern.tag;
    tell_error(none, rx_queue_, FI_ENOMSG, "no such message has come yet");
    return 0;
  }
  const PeerId from = at->source;
  Outcome outcome = receive_outcome(at->message.frame, receive, from);
  outcome.completion.error = 0;
  outcome.completion.length = at->message.frame.length;
  outcome.counts = 0;
  if ((receive.flags & FI_CLAIM) != 0) {
    at->claimed_by = receive.context;
  } else if ((receive.flags & FI_DISCARD) != 0) {
    const Unexpected message = tagged_.take(at);
    kept_bytes_ -= frame_bytes(message.payload.size());
    discard(from, message);
  }
  tell(outcome, rx_queue_);
  return 0;
}

ssize_t Endpoint::post_claimed(const Receive& receive) {
  if (!enabled()) return -FI_EOPBADSTATE;
  if (receives_full() || operations_.full()) return -FI_EAGAIN;
  const auto at = tagged_.claimed(receive.context);
  if (at == tagged_.messages().end()) return -FI_ENOMSG;
  const PeerId from = at->source;
  const Unexpected message = tagged_.take(at);
  kept_bytes_ -= frame_bytes(message.payload.size());
  if ((receive.flags & FI_DISCARD) != 0) {
    Outcome outcome = receive_outcome(message.frame, receive, from);
    outcome.completion.error = 0;
    discard(from, message);
    tell(outcome, rx_queue_);
  } else {
    receive_message(from, message.frame, message.payload, receive);
  }
  return 0;
}

}  // namespace pacecar::fabric
