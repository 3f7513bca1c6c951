// Handles the frames of peers. Everything in them is checked; a protocol error fails the peer.
#include <algorithm>
#include <cstring>

#include "net_plugin/libfabric/core/atomics.h"
#include "net_plugin/libfabric/endpoint.h"
#include "net_plugin/libfabric/link/socket_name.h"
#include "transport/base/return_if_error.h"

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

bool Endpoint::read_frames(PeerId number, IncomingStream& stream) {
  uint32_t messages = 0;
  while (messages < kMaxMessages && read_message(number, stream)) ++messages;
  return messages > 0;
}

bool Endpoint::read_message(PeerId number, IncomingStream& stream) {
  Peer& peer = *peers_[number];
  if (stream.source == nullptr) return false;
  const auto failed = [&](int error, const std::string& why) {
    fail_peer(number, error, why);
    return false;
  };
  if (!stream.reading) {
    const auto message = stream.source->next();
    if (!message && has_unread_frames(peer)) return false;  // sent before the peer ended
    if (!message) return failed(fi_error(message.error().code), Error(message.error()).message);
    if (message->empty()) return false;
    stream.reading.emplace(*message);
  }
  while (true) {
    const FrameReader here = *stream.reading;
    const auto view = stream.reading->next();
    if (!view) break;
    const FrameResult taken = on_frame(number, stream, *view);
    if (stream.source == nullptr) return false;  // the peer was failed
    if (taken == FrameResult::kNoRoom) {
      stream.reading = here;
      return false;
    }
    if (taken == FrameResult::kProtocolError) {
      return failed(EPROTO, name_text(peer.name) +
                                " sent an invalid frame: run the same version of Pacecar on "
                                "both sides");
    }
  }
  if (!stream.reading->whole()) {
    return failed(EPROTO, name_text(peer.name) + " sent bytes that are no frame");
  }
  stream.reading.reset();
  const auto done = stream.source->done();
  return done ? true : failed(fi_error(done.error().code), done.error().message);
}

bool Endpoint::has_unread_frames(Peer& peer) {
  const auto unread = [](IncomingStream& stream) {
    if (stream.reading) return true;
    const auto message = stream.source ? stream.source->next() : std::span<const uint8_t>();
    return message && !message->empty();
  };
  return unread(peer.frames) || unread(peer.placed) || unread(peer.shared);
}

Endpoint::FrameResult Endpoint::on_frame(PeerId number, const IncomingStream& stream,
                                         const FrameView& view) {
  const FrameKind kind = view.frame.kind;
  const bool behind_puts = kind == FrameKind::kPlaced || kind == FrameKind::kDone;
  if (&stream == &peers_[number]->placed && !behind_puts) return FrameResult::kProtocolError;
  switch (kind) {
    case FrameKind::kMessage:
    case FrameKind::kOffer:
      return on_message(number, view);
    case FrameKind::kWrite:
    case FrameKind::kWriteOffer:
    case FrameKind::kRead:
    case FrameKind::kAtomic:
      return on_request(number, view);
    case FrameKind::kClearToSend:
      return on_clear_to_send(number, view);
    case FrameKind::kPlaced:
      return on_placed(number, view.frame);
    case FrameKind::kDone:
      return on_done(number, view);
    case FrameKind::kBye:
      peers_[number]->closed_by_peer = true;
      fail_peer(number, FI_ENOTCONN, name_text(peers_[number]->name) + " has closed its endpoint");
      return FrameResult::kHandled;
    case FrameKind::kWake:
      return FrameResult::kHandled;
    case FrameKind::kHello:
      break;
  }
  return FrameResult::kProtocolError;
}

void Endpoint::reply(PeerId number, const Frame& given, std::span<const uint8_t> payload) {
  Peer& peer = *peers_[number];
  if (peer.sends_fail()) return;
  Frame frame = given;
  frame.payload = static_cast<uint32_t>(payload.size());
  if (!peer.outbox->reply(frame, payload)) {
    return fail_peer(number, EPROTO,
                     name_text(peer.name) + " sends requests but receives no replies");
  }
  start_sending(number, Outbox::Coming::kMore);
}

void Endpoint::reply_status(PeerId number, uint64_t id, Status status) {
  reply(number, {.kind = FrameKind::kDone, .data = static_cast<uint64_t>(status), .id = id});
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

void Endpoint::report_remote_access(MemoryRegion& region, const Frame& frame, PeerId from,
                                    uint64_t kind) {
  count(FI_REMOTE_WRITE, false);
  if (region.counter != nullptr) region.counter->count(false);
  if ((frame.flags & kHasData) == 0 || rx_queue_ == nullptr) return;
  Completion completion;
  completion.flags = kind | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
  completion.length = frame.length;
  completion.data = frame.data;
  completion.source = source_of(*peers_[from]);
  rx_queue_->add(std::move(completion));
}

bool Endpoint::waits_for_room(PeerId number, const Frame& frame) const {
  return operations_.full() || peers_[number]->serving == kMaxServedPerPeer ||
         ((frame.flags & kHasData) != 0 && receives_full());
}

Result<std::pair<uint64_t, Endpoint::Operation*>> Endpoint::serve(PeerId number,
                                                                  Operation::Kind kind,
                                                                  const Local& memory) {
  ASSIGN_OR_RETURN(auto bounce,
                   bounce_for(memory, memory.bytes(), kind == Operation::Kind::kServeRead));
  const auto [id, operation] = operations_.take();
  ++peers_[number]->serving;
  operation->kind = kind;
  operation->peer = number;
  operation->local = memory;
  use_bounce(*operation, std::move(bounce));
  return std::pair(id, operation);
}

// A request for remote access: a write, an offer of a write, a read or an atomic.
Endpoint::FrameResult Endpoint::on_request(PeerId number, const FrameView& view) {
  const Frame& frame = view.frame;
  const FrameKind kind = frame.kind;
  const bool whole = kind == FrameKind::kWrite  ? frame.length == view.payload.size()
                     : kind == FrameKind::kRead ? has_sound_segments(view)
                                                : true;
  if (!whole) return FrameResult::kProtocolError;
  if (waits_for_room(number, frame)) return FrameResult::kNoRoom;
  const Target target = resolve_target(frame, access_of(frame));
  std::optional<Status> status = target.status;
  if (kind == FrameKind::kAtomic && !is_valid_atomic(view)) status = Status::kUnsupported;
  if (status == Status::kOk) {
    status = kind == FrameKind::kWrite        ? on_write(number, view, target)
             : kind == FrameKind::kWriteOffer ? on_write_offer(number, view, target)
             : kind == FrameKind::kRead       ? on_read(number, view, target)
                                              : on_atomic(number, view, target);
  }
  if (status) reply_status(number, frame.id, *status);
  return FrameResult::kHandled;
}

std::optional<Status> Endpoint::on_write(PeerId number, const FrameView& view,
                                         const Target& target) {
  if (const auto copied = copy_in(target.memory, view.payload); !copied) {
    return no_access(copied.error());
  }
  report_remote_access(target.region(), view.frame, number, FI_RMA);
  return Status::kOk;
}

std::optional<Status> Endpoint::on_write_offer(PeerId number, const FrameView& view,
                                               const Target& target) {
  const auto served = serve(number, Operation::Kind::kServeWrite, target.memory);
  if (!served) return no_access(served.error());
  const auto [id, operation] = *served;
  operation->request = view.frame;
  operation->remote_id = view.frame.id;
  operation->length = view.frame.length;
  if (can_read_directly(*operation, view)) {
    start_direct_read(id);
  } else {
    clear_to_send(id);
  }
  return std::nullopt;
}

std::optional<Status> Endpoint::on_read(PeerId number, const FrameView& view,
                                        const Target& target) {
  const Frame& frame = view.frame;
  if ((frame.flags & kDirect) != 0) {
    reply_with_segments(number, frame, target.memory);
    return std::nullopt;
  }
  if (frame.length <= kEagerBytes) {
    const auto copy = bounce_for(target.memory, frame.length, true);
    if (!copy) return no_access(copy.error());
    const uint8_t* const bytes =
        *copy != nullptr ? (*copy)->host.data() : target.memory.pieces[0].data;
    count(FI_REMOTE_READ, false);
    reply(number, {.kind = FrameKind::kDone, .id = frame.id}, {bytes, frame.length});
    return std::nullopt;
  }
  const auto served = serve(number, Operation::Kind::kServeRead, target.memory);
  if (!served) return no_access(served.error());
  const auto [id, operation] = *served;
  if ((frame.flags & kRepeated) == 0) count(FI_REMOTE_READ, false);
  operation->remote_id = frame.id;
  operation->segment_count = view.payload.size() / sizeof(RemoteSegment);
  std::memcpy(operation->segments.data(), view.payload.data(), view.payload.size());
  peers_[number]->queued_puts.push_back(id);
  return std::nullopt;
}

std::optional<Status> Endpoint::on_atomic(PeerId number, const FrameView& view,
                                          const Target& target) {
  const Frame& frame = view.frame;
  const bool fetches = (frame.flags & kFetches) != 0;
  const uint8_t* const operands = view.payload.data();
  std::array<uint8_t, kAtomicBytes> result;
  // GPU memory is copied to the host, changed there and copied back.
  const auto copy = bounce_for(target.memory, frame.length, true);
  if (!copy) return no_access(copy.error());
  uint8_t* const at = *copy != nullptr ? (*copy)->host.data() : target.memory.pieces[0].data;
  apply_atomic(frame.operation, frame.datatype, frame.length / datatype_bytes(frame.datatype), at,
               reads(frame) ? nullptr : operands,
               (frame.flags & kCompares) != 0 ? operands + frame.length : nullptr,
               fetches ? result.data() : nullptr);
  if (*copy != nullptr) {
    if (auto copied = copy_in(target.memory, {at, frame.length}); !copied) {
      return no_access(copied.error());
    }
  }
  if (reads(frame)) {
    count(FI_REMOTE_READ, false);
  } else {
    report_remote_access(target.region(), frame, number, FI_ATOMIC);
  }
  reply(number, {.kind = FrameKind::kDone, .id = frame.id},
        {result.data(), fetches ? frame.length : 0});
  return std::nullopt;
}

// --- replies to our requests ---

Endpoint::FrameResult Endpoint::on_clear_to_send(PeerId number, const FrameView& view) {
  const Frame& frame = view.frame;
  Operation* const operation = operations_.find(frame.id);
  const bool expected = operation != nullptr && operation->peer == number &&
                        !operation->cts_received && operation->offered;
  const bool sound = expected && frame.length <= operation->length &&
                     take_segments(*operation, view.payload, frame.length);
  if (!sound) return FrameResult::kProtocolError;
  operation->cts_received = true;
  operation->remote_id = frame.address;
  operation->pending.completion.length = frame.length;
  peers_[number]->queued_puts.push_back(frame.id);
  start_queued_puts(number);
  return FrameResult::kHandled;
}

Endpoint::FrameResult Endpoint::on_placed(PeerId number, const Frame& frame) {
  Operation* const operation = operations_.find(frame.id);
  const bool cts_sent = operation != nullptr && operation->peer == number &&
                        (operation->kind == Operation::Kind::kReceive ||
                         operation->kind == Operation::Kind::kServeWrite);
  if (!cts_sent || operation->reads_directly) return FrameResult::kProtocolError;
  on_all_bytes(frame.id);
  return FrameResult::kHandled;
}

// All bytes of an offer are in our memory.
void Endpoint::on_all_bytes(uint64_t id) {
  Operation& operation = *operations_.find(id);
  const PeerId number = operation.peer;
  const Frame offer = operation.request;
  const bool write = operation.kind == Operation::Kind::kServeWrite;
  Status status = Status::kOk;
  if (write) {
    const auto delivered = deliver(operation);
    // The application may have closed the memory region meanwhile.
    const Target target = resolve_target(offer, FI_REMOTE_WRITE);
    if (!delivered) {
      status = no_access(delivered.error());
    } else if (target.status == Status::kOk) {
      report_remote_access(target.region(), offer, number, FI_RMA);
    }
  }
  end(id, 0, {});
  if (write || (offer.flags & kWantsDone) != 0) reply_status(number, offer.id, status);
}

Endpoint::FrameResult Endpoint::on_done(PeerId number, const FrameView& view) {
  const uint64_t id = view.frame.id;
  Operation* const operation = operations_.find(id);
  const bool expected = operation != nullptr && operation->peer == number && operation->awaits_done;
  if (!expected) return FrameResult::kProtocolError;
  const int error = error_of(view.frame.data);
  const bool reads =
      operation->kind == Operation::Kind::kRead || operation->kind == Operation::Kind::kAtomic;
  const bool eager = operation->length <= kEagerBytes;
  if (error == 0 && reads && eager) {
    if (view.payload.size() != operation->length) return FrameResult::kProtocolError;
    (void)copy_in(operation->local, view.payload);  // host memory, or a bounce buffer
  }
  const bool direct =
      operation->kind == Operation::Kind::kRead && (operation->request.flags & kDirect) != 0;
  if (error == 0 && direct) {
    on_direct_reply(id, view);
    return FrameResult::kHandled;
  }
  operation->awaits_done = false;
  if (operation->offered && !operation->cts_received) operation->puts_issued = true;
  if (error != 0) {
    operation->pending.completion.error = error;
    operation->pending.completion.why =
        "the peer refuses the access: check key, bounds and access flags";
  }
  if (error != 0 && operation->outstanding_puts == 0) {
    end(id, 0, {});
  } else {
    end_if_done(id, *operation);
  }
  return FrameResult::kHandled;
}

}  // namespace pacecar::fabric
