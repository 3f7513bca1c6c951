#include "net_plugin/libfabric/endpoint/peer.h"

#include "transport/wire/address.h"

namespace pacecar::fabric {

bool Peer::has_unread_frames() const {
  const auto unread = [](const IncomingStream& stream) {
    if (stream.reading) return true;
    const auto message = stream.source ? stream.source->next() : std::span<const uint8_t>();
    return message && !message->empty();
  };
  return unread(frames) || unread(placed) || unread(shared);
}

bool Peer::is_flushed() const {
  const bool putting = puts != nullptr && !puts->idle();
  return sends_fail() || (!putting && outbox->idle() && queued_puts.empty());
}

void Peer::fail(Failure::When when, int error, const std::string& why) {
  if (failure && failure->when >= when) return;
  const auto lasted = failure ? failure->lasted : Duration();
  failure = Failure{.when = when, .error = error, .why = why, .lasted = lasted};
}

bool Peer::make_room(size_t payload) {
  if (!outbox->has_room(payload)) domain->progress();
  return outbox->has_room(payload);
}

void Peer::start_sending(Outbox::Coming coming) {
  if (const auto started = outbox->start(coming); !started) return cannot_send(started.error());
  if (outbox->has_unsent_frames()) domain->progress_while_owed();
}

void Peer::reply(Frame frame, std::span<const uint8_t> payload) {
  if (sends_fail()) return;
  frame.payload = static_cast<uint32_t>(payload.size());
  if (!outbox->reply(frame, payload)) {
    return fail(Failure::When::kNow, EPROTO,
                to_string(name) + " sends requests but receives no replies");
  }
  start_sending(Outbox::Coming::kMore);
}

void Peer::reply_status(uint64_t id, Status status) {
  reply({.kind = FrameKind::kDone, .data = static_cast<uint64_t>(status), .id = id});
}

}  // namespace pacecar::fabric
