// Handles the frames of peers. Everything in them is checked; a protocol error fails the peer.
#include <cstring>

#include "net_plugin/libfabric/core/atomics.h"
#include "net_plugin/libfabric/endpoint.h"
#include "transport/wire/address.h"

namespace pacecar::fabric {
namespace {

// The fi_errno of a Status that a peer has sent.
int error_of(uint64_t status) {
  constexpr std::array<int, 4> kErrors = {0, FI_ENOKEY, FI_EACCES, FI_EOPNOTSUPP};
  return status < kErrors.size() ? kErrors[status] : FI_EIO;
}

// Whether this atomic reads without operands.
bool reads(const Frame& atomic) {
  return atomic.operation == static_cast<uint8_t>(AtomicOp::kRead);
}

// Whether operation and datatype exist, and all operands are there.
bool is_valid_atomic(const FrameView& view) {
  const Frame& frame = view.frame;
  const bool compares = (frame.flags & kCompares) != 0;
  const bool fetches = (frame.flags & kFetches) != 0;
  const uint64_t operands = reads(frame) ? 0 : frame.length;
  return atomic_valid(frame.operation, frame.datatype, fetches, compares) &&
         frame.length <= kAtomicBytes && frame.length % datatype_bytes(frame.datatype) == 0 &&
         view.payload.size() == (compares ? 2 * operands : operands);
}

// Segments to put into come with a large read, unless its initiator reads our memory itself.
bool has_sound_segments(const FrameView& read) {
  const size_t segments = read.payload.size() / sizeof(RemoteSegment);
  const bool by_puts = read.frame.length > kEagerBytes && (read.frame.flags & kDirect) == 0;
  return read.payload.size() % sizeof(RemoteSegment) == 0 && segments <= kMaxSegments &&
         by_puts == (segments > 0);
}

// The access that a request needs.
uint64_t access_of(const Frame& request) {
  const bool read =
      request.kind == FrameKind::kRead || (request.kind == FrameKind::kAtomic && reads(request));
  return read ? FI_REMOTE_READ : FI_REMOTE_WRITE;
}

Status no_access(const Error& error) {
  log_warning(error.message);
  return Status::kNoAccess;
}

}  // namespace

bool Endpoint::read_frames(Peer& peer, IncomingStream& stream) {
  uint32_t messages = 0;
  while (messages < kMaxMessages && read_message(peer, stream)) ++messages;
  return messages > 0;
}

bool Endpoint::read_message(Peer& peer, IncomingStream& stream) {
  if (stream.source == nullptr) return false;
  const auto failed = [&](int error, const std::string& why) {
    fail_peer(peer, error, why);
    return false;
  };
  if (!stream.reading) {
    const auto message = stream.source->next();
    if (!message && peer.has_unread_frames()) return false;  // sent before the peer ended
    if (!message) return failed(fi_error(message.error().code), Error(message.error()).message);
    if (message->empty()) return false;
    stream.reading.emplace(*message);
  }
  while (true) {
    const FrameReader here = *stream.reading;
    const auto view = stream.reading->next();
    if (!view) break;
    const FrameResult taken = on_frame(peer, stream, *view);
    if (stream.source == nullptr) return false;  // the peer was failed
    if (taken == FrameResult::kNoRoom) {
      stream.reading = here;
      return false;
    }
    if (taken == FrameResult::kProtocolError) {
      return failed(EPROTO, to_string(peer.name) +
                                " sent an invalid frame: run the same version of Pacecar on "
                                "both sides");
    }
  }
  if (!stream.reading->whole()) {
    return failed(EPROTO, to_string(peer.name) + " sent bytes that are no frame");
  }
  stream.reading.reset();
  const auto done = stream.source->done();
  return done ? true : failed(fi_error(done.error().code), done.error().message);
}

bool Peer::has_unread_frames() const {
  const auto unread = [](const IncomingStream& stream) {
    if (stream.reading) return true;
    const auto message = stream.source ? stream.source->next() : std::span<const uint8_t>();
    return message && !message->empty();
  };
  return unread(frames) || unread(placed) || unread(shared);
}

Endpoint::FrameResult Endpoint::on_frame(Peer& peer, const IncomingStream& stream,
                                         const FrameView& view) {
  const FrameKind kind = view.frame.kind;
  const bool behind_puts = kind == FrameKind::kPlaced || kind == FrameKind::kDone;
  if (&stream == &peer.placed && !behind_puts) return FrameResult::kProtocolError;
  switch (kind) {
    case FrameKind::kMessage:
    case FrameKind::kOffer:
      return on_message(peer, view);
    case FrameKind::kWrite:
    case FrameKind::kWriteOffer:
    case FrameKind::kRead:
    case FrameKind::kAtomic:
      return on_request(peer, view);
    case FrameKind::kClearToSend:
      return on_clear_to_send(peer, view);
    case FrameKind::kPlaced:
      return on_placed(peer, view.frame);
    case FrameKind::kDone:
      return on_done(peer, view);
    case FrameKind::kBye:
      peer.closed_by_peer = true;
      fail_peer(peer, FI_ENOTCONN, to_string(peer.name) + " has closed its endpoint");
      return FrameResult::kHandled;
    case FrameKind::kWake:
      return FrameResult::kHandled;
    case FrameKind::kHello:
      break;
  }
  return FrameResult::kProtocolError;
}

void Endpoint::reply(Peer& peer, Frame frame, std::span<const uint8_t> payload) {
  if (peer.sends_fail()) return;
  frame.payload = static_cast<uint32_t>(payload.size());
  if (!peer.outbox->reply(frame, payload)) {
    return fail_peer(peer, EPROTO,
                     to_string(peer.name) + " sends requests but receives no replies");
  }
  start_sending(peer, Outbox::Coming::kMore);
}

void Endpoint::reply_status(Peer& peer, uint64_t id, Status status) {
  reply(peer, {.kind = FrameKind::kDone, .data = static_cast<uint64_t>(status), .id = id});
}

// --- remote access to our memory ---

Endpoint::Target Endpoint::resolve_target(const Frame& frame, uint64_t access) const {
  const auto at = domain_.regions.find(frame.tag);
  if (at == domain_.regions.end()) return {.status = Status::kNoKey};
  MemoryRegion& region = *at->second;
  uint8_t* const bytes = region.find(frame.address, frame.length);
  if (bytes == nullptr || (region.access & access) == 0) return {.status = Status::kNoAccess};
  return {.memory = Local::one(bytes, frame.length, &region)};
}

void Endpoint::report_remote_access(MemoryRegion& region, const Frame& frame, Peer& from,
                                    uint64_t kind) {
  count(FI_REMOTE_WRITE, false);
  if (region.counter != nullptr) region.counter->count(false);
  if ((frame.flags & kHasData) == 0 || rx_queue_ == nullptr) return;
  Completion completion;
  completion.flags = kind | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
  completion.len = frame.length;
  completion.data = frame.data;
  completion.source = source_of(from);
  rx_queue_->add(std::move(completion));
}

// A request for remote access: a write, an offer of a write, a read or an atomic.
Endpoint::FrameResult Endpoint::on_request(Peer& peer, const FrameView& view) {
  const Frame& frame = view.frame;
  const FrameKind kind = frame.kind;
  const bool whole = kind == FrameKind::kWrite  ? frame.length == view.payload.size()
                     : kind == FrameKind::kRead ? has_sound_segments(view)
                                                : true;
  if (!whole) return FrameResult::kProtocolError;
  const bool completes = (frame.flags & kHasData) != 0;
  if (operations_.full() || peer.serving == kMaxServedPerPeer || (completes && receives_full())) {
    return FrameResult::kNoRoom;
  }
  const Target target = resolve_target(frame, access_of(frame));
  std::optional<Status> status = target.status;
  if (kind == FrameKind::kAtomic && !is_valid_atomic(view)) status = Status::kUnsupported;
  if (status == Status::kOk) {
    status = kind == FrameKind::kWrite        ? on_write(peer, view, target)
             : kind == FrameKind::kWriteOffer ? on_write_offer(peer, view, target)
             : kind == FrameKind::kRead       ? on_read(peer, view, target)
                                              : on_atomic(peer, view, target);
  }
  if (status) reply_status(peer, frame.id, *status);
  return FrameResult::kHandled;
}

std::optional<Status> Endpoint::on_write(Peer& peer, const FrameView& view, const Target& target) {
  if (const auto copied = target.memory.copy_in(view.payload); !copied) {
    return no_access(copied.error());
  }
  report_remote_access(target.region(), view.frame, peer, FI_RMA);
  return Status::kOk;
}

std::optional<Status> Endpoint::on_write_offer(Peer& peer, const FrameView& view,
                                               const Target& target) {
  Operation& operation = begin(peer, Operation::Kind::kServeWrite, target.memory,
                               Bounce::into(target.memory, view.frame.length));
  operation.request = view.frame;
  operation.remote_id = view.frame.id;
  fetch(operation, view);
  return std::nullopt;
}

std::optional<Status> Endpoint::on_read(Peer& peer, const FrameView& view, const Target& target) {
  const Frame& frame = view.frame;
  if ((frame.flags & kDirect) != 0) {
    reply_with_segments(peer, frame, target.memory);
    return std::nullopt;
  }
  auto bounce = Bounce::with(target.memory);
  if (!bounce) return no_access(bounce.error());
  if ((frame.flags & kRepeated) == 0) count(FI_REMOTE_READ, false);
  if (frame.length <= kEagerBytes) {
    const uint8_t* const bytes =
        *bounce != nullptr ? (*bounce)->host.data() : target.memory.pieces[0].data;
    reply(peer, {.kind = FrameKind::kDone, .id = frame.id}, {bytes, frame.length});
    return std::nullopt;
  }
  Operation& operation =
      begin(peer, Operation::Kind::kServeRead, target.memory, std::move(*bounce));
  operation.remote_id = frame.id;
  operation.segment_count = view.payload.size() / sizeof(RemoteSegment);
  std::memcpy(operation.segments.data(), view.payload.data(), view.payload.size());
  peer.queued_puts.push_back(operation.number);
  return std::nullopt;
}

std::optional<Status> Endpoint::on_atomic(Peer& peer, const FrameView& view, const Target& target) {
  const Frame& frame = view.frame;
  const bool fetches = (frame.flags & kFetches) != 0;
  const uint8_t* const operands = view.payload.data();
  std::array<uint8_t, kAtomicBytes> result;
  // GPU memory is copied to the host, changed there and copied back.
  const auto copy = Bounce::with(target.memory);
  if (!copy) return no_access(copy.error());
  uint8_t* const at = *copy != nullptr ? (*copy)->host.data() : target.memory.pieces[0].data;
  apply_atomic(frame.operation, frame.datatype, frame.length / datatype_bytes(frame.datatype), at,
               reads(frame) ? nullptr : operands,
               (frame.flags & kCompares) != 0 ? operands + frame.length : nullptr,
               fetches ? result.data() : nullptr);
  if (*copy != nullptr) {
    if (auto copied = target.memory.copy_in({at, frame.length}); !copied) {
      return no_access(copied.error());
    }
  }
  if (reads(frame)) {
    count(FI_REMOTE_READ, false);
  } else {
    report_remote_access(target.region(), frame, peer, FI_ATOMIC);
  }
  reply(peer, {.kind = FrameKind::kDone, .id = frame.id},
        {result.data(), fetches ? frame.length : 0});
  return std::nullopt;
}

// --- replies to our requests ---

Endpoint::FrameResult Endpoint::on_clear_to_send(Peer& peer, const FrameView& view) {
  const Frame& frame = view.frame;
  Operation* const operation = operations_.find(frame.id);
  const bool expected = operation != nullptr && operation->peer == &peer &&
                        !operation->cts_received && operation->offered;
  const bool sound = expected && frame.length <= operation->length &&
                     operation->take_segments(view.payload, frame.length);
  if (!sound) return FrameResult::kProtocolError;
  operation->cts_received = true;
  operation->remote_id = frame.address;
  operation->pending.completion.len = frame.length;
  peer.queued_puts.push_back(frame.id);
  start_queued_puts(peer);
  return FrameResult::kHandled;
}

Endpoint::FrameResult Endpoint::on_placed(const Peer& peer, const Frame& frame) {
  Operation* const operation = operations_.find(frame.id);
  const bool cts_sent = operation != nullptr && operation->peer == &peer &&
                        (operation->kind == Operation::Kind::kReceive ||
                         operation->kind == Operation::Kind::kServeWrite);
  if (!cts_sent || operation->reads_directly) return FrameResult::kProtocolError;
  on_all_bytes(*operation);
  return FrameResult::kHandled;
}

// All bytes of an offer are in our memory.
void Endpoint::on_all_bytes(Operation& operation) {
  Peer& peer = *operation.peer;
  const Frame offer = operation.request;
  const bool write = operation.kind == Operation::Kind::kServeWrite;
  Status status = Status::kOk;
  if (write) {
    const auto delivered = operation.deliver();
    // The application may have closed the memory region meanwhile.
    const Target target = resolve_target(offer, FI_REMOTE_WRITE);
    if (!delivered) {
      status = no_access(delivered.error());
    } else if (target.status == Status::kOk) {
      report_remote_access(target.region(), offer, peer, FI_RMA);
    }
  }
  end(operation);
  if (write || (offer.flags & kWantsDone) != 0) reply_status(peer, offer.id, status);
}

Endpoint::FrameResult Endpoint::on_done(const Peer& peer, const FrameView& view) {
  Operation* const operation = operations_.find(view.frame.id);
  const bool expected = operation != nullptr && operation->peer == &peer && operation->awaits_done;
  if (!expected) return FrameResult::kProtocolError;
  const int error = error_of(view.frame.data);
  const bool reads =
      operation->kind == Operation::Kind::kRead || operation->kind == Operation::Kind::kAtomic;
  const bool eager = operation->length <= kEagerBytes;
  if (error == 0 && reads && eager) {
    if (view.payload.size() != operation->length) return FrameResult::kProtocolError;
    (void)operation->local.copy_in(view.payload);  // host memory, or a bounce buffer
  }
  const bool direct =
      operation->kind == Operation::Kind::kRead && (operation->request.flags & kDirect) != 0;
  if (error == 0 && direct) {
    on_direct_reply(*operation, view);
    return FrameResult::kHandled;
  }
  operation->awaits_done = false;
  if (operation->offered && !operation->cts_received) operation->puts_issued = true;
  if (error != 0) {
    operation->pending.completion.fail(
        error, "the peer refuses the access: check key, bounds and access flags");
  }
  if (error != 0 && operation->outstanding_puts == 0) {
    end(*operation);
  } else {
    end_if_done(*operation);
  }
  return FrameResult::kHandled;
}

}  // namespace pacecar::fabric
