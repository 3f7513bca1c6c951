#include "net_plugin/libfabric/endpoint/initiator.h"

#include <algorithm>

namespace pacecar::fabric {
namespace {

// Bytes of one peer's replies to eager reads, which wait in its memory while they cannot be sent.
constexpr uint64_t kMostReading = uint64_t{16} << 20;

constexpr uint64_t kCompleteAtPeer =
    FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_COMMIT_COMPLETE;

uint64_t completion_flags(const OperationRequest& request) {
  switch (request.frame.kind) {
    case FrameKind::kWrite: return FI_RMA | FI_WRITE;
    case FrameKind::kRead: return FI_RMA | FI_READ;
    case FrameKind::kAtomic:
      return FI_ATOMIC | ((request.frame.flags & kFetches) != 0 ? FI_READ : FI_WRITE);
    default: return FI_SEND | ((request.frame.flags & kTagged) != 0 ? FI_TAGGED : FI_MSG);
  }
}

Outbox::Coming coming(const OperationRequest& request) {
  return (request.flags & FI_MORE) != 0 ? Outbox::Coming::kMore : Outbox::Coming::kUnknown;
}

bool is_copied(const Peer& peer, const OperationRequest& request) {
  if (request.frame.kind == FrameKind::kAtomic) return true;
  // Not writes: these are ordered up to kEagerBytes, and one whose direct read fails would be late.
  const bool direct =
      request.frame.kind == FrameKind::kMessage && peer.reads_our_memory() && !request.injects();
  const size_t most = direct ? kDirectEagerBytes : kEagerBytes;
  return request.frame.kind != FrameKind::kRead && request.local.bytes() <= most;
}

Frame frame_of(const OperationRequest& request, FrameKind kind, size_t payload, uint64_t id) {
  Frame frame = request.frame;
  frame.kind = kind;
  frame.payload = static_cast<uint32_t>(payload);
  frame.length = request.local.bytes();
  frame.id = id;
  if (request.frame.kind == FrameKind::kMessage && (request.flags & kCompleteAtPeer) != 0) {
    frame.flags |= kWantsDone;
  }
  return frame;
}

// The fi_errno of a Status that a peer has sent.
int error_of(uint64_t status) {
  constexpr std::array<int, 4> kErrors = {0, FI_ENOKEY, FI_EACCES, FI_EOPNOTSUPP};
  return status < kErrors.size() ? kErrors[status] : FI_EIO;
}

}  // namespace

PendingCompletion Initiator::completion_for(const OperationRequest& request) const {
  PendingCompletion pending;
  pending.completion.op_context = request.context;
  pending.completion.flags = completion_flags(request);
  pending.queued_on_success = !request.inject && state_.completions.transmit().wants(request.flags);
  return pending;
}

bool Initiator::is_full(const Peer& peer) const {
  return state_.completions.transmit().full() || state_.operations.full() ||
         state_.operations.initiated() >= max_initiated_ ||
         peer.held_completions.size() >= max_initiated_;
}

// Reads up to kEagerBytes are ordered before later writes and atomics (FI_ORDER_WAR).
bool Initiator::overtakes_read(const OperationRequest& request, const Peer& peer) {
  const FrameKind kind = request.frame.kind;
  return (kind == FrameKind::kWrite || kind == FrameKind::kAtomic) &&
         std::ranges::any_of(peer.queued_reads, [&](uint64_t read) {
           return state_.operations.find(read)->length <= kEagerBytes;
         });
}

bool Initiator::make_room(const OperationRequest& request, const Peer& peer) {
  const auto has_room = [&] { return !is_full(peer) && !overtakes_read(request, peer); };
  if (has_room()) return true;
  state_.domain.progress();
  return has_room();
}

ssize_t Initiator::start(const OperationRequest& request, Peer& peer) {
  const bool copied = is_copied(peer, request);
  if (copied && (request.local.on_device() || request.comparands.on_device())) {
    return start_from_host(request, peer);
  }
  switch (request.frame.kind) {
    case FrameKind::kRead: return start_read(request, peer);
    case FrameKind::kAtomic: return start_atomic(request, peer);
    default: return copied ? start_eagerly(request, peer) : start_offered(request, peer);
  }
}

// GPU memory is copied to a bounce buffer first, and from there into the frame.
ssize_t Initiator::start_from_host(const OperationRequest& request, Peer& peer) {
  OperationRequest copy = request;
  const auto local = Bounce::with(request.local);
  const auto comparands = Bounce::with(request.comparands);
  for (const auto* made : {&local, &comparands}) {
    if (*made) continue;
    log_warning(made->error().message);
    return -FI_EIO;
  }
  if (*local != nullptr) copy.local = (*local)->memory();
  if (*comparands != nullptr) copy.comparands = (*comparands)->memory();
  return request.frame.kind == FrameKind::kAtomic ? start_atomic(copy, peer)
                                                  : start_eagerly(copy, peer);
}

ssize_t Initiator::start_eagerly(const OperationRequest& request, Peer& peer) {
  const size_t bytes = request.local.bytes();
  if (!peer.make_room(bytes)) return -FI_EAGAIN;
  const bool write = request.frame.kind == FrameKind::kWrite;
  const bool delivered = !request.inject && (request.flags & kCompleteAtPeer) != 0;
  Frame frame = frame_of(request, request.frame.kind, bytes, 0);
  if (!delivered) frame.flags &= static_cast<uint8_t>(~kWantsDone);
  PendingCompletion pending = completion_for(request);
  const bool awaits_done = write || delivered;
  if (awaits_done) {
    Operation& operation =
        state_.operations.begin(peer, write ? Operation::Kind::kWrite : Operation::Kind::kDelivery);
    operation.pending = std::move(pending);
    operation.awaits_done = true;
    frame.id = operation.number;
  }
  (void)request.local.copy_out({peer.outbox->add(frame), bytes});  // host memory
  if (!awaits_done) {
    // It completes when the peer is connected, which gets the frame; with a lost peer it fails.
    peer.can_send() ? state_.completions.report(std::move(pending))
                    : peer.held_completions.push_back(std::move(pending));
  }
  peer.start_sending(coming(request));
  return 0;
}

ssize_t Initiator::start_offered(const OperationRequest& request, Peer& peer) {
  if (!peer.make_room(kMaxSegments * sizeof(RemoteSegment))) return -FI_EAGAIN;
  auto bounce = Bounce::with(request.local);
  if (!bounce) {
    log_warning(bounce.error().message);
    return -FI_EIO;
  }
  const bool write = request.frame.kind == FrameKind::kWrite;
  Operation& operation =
      state_.operations.begin(peer, write ? Operation::Kind::kWrite : Operation::Kind::kOffer,
                              request.local, std::move(*bounce));
  operation.pending = completion_for(request);
  operation.offered = true;
  const bool direct = peer.reads_our_memory();
  operation.awaits_done = write || direct || (request.flags & kCompleteAtPeer) != 0;
  std::vector<uint8_t> segments;
  if (direct) segments = operation.local.segments();
  Frame frame = frame_of(request, write ? FrameKind::kWriteOffer : FrameKind::kOffer,
                         segments.size(), operation.number);
  if (direct) frame.flags |= kDirect | (write ? uint8_t{0} : kWantsDone);
  std::ranges::copy(segments, peer.outbox->add(frame));
  peer.start_sending(Outbox::Coming::kUnknown);
  return 0;
}

ssize_t Initiator::start_read(const OperationRequest& request, Peer& peer) {
  Operation& operation =
      state_.operations.begin(peer, Operation::Kind::kRead, request.local,
                              Bounce::into(request.local, request.local.bytes()));
  operation.pending = completion_for(request);
  operation.request = frame_of(request, FrameKind::kRead, 0, operation.number);
  peer.queued_reads.push_back(operation.number);
  start_queued_reads(peer);
  return 0;
}

// A large read waits for the peer's connection to us, because the peer serves it by puts.
void Initiator::start_queued_reads(Peer& peer) {
  while (!peer.queued_reads.empty() &&
         peer.outbox->has_room(kMaxSegments * sizeof(RemoteSegment))) {
    Operation& operation = *state_.operations.find(peer.queued_reads.front());
    const bool large = operation.length > kEagerBytes;
    if (!large && peer.reading + operation.length > kMostReading) break;
    const bool direct = large && peer.reads_our_memory() && !operation.direct_failed;
    if (direct) operation.request.flags |= kDirect;
    if (large && !direct) {
      if (peer.frames.source == nullptr) break;
      if (!state_.operations.describe_segments(operation)) {
        peer.queued_reads.pop_front();
        state_.operations.end(operation, FI_ENOMEM,
                              "memory cannot be registered: see the log line before this one");
        continue;
      }
    }
    peer.queued_reads.pop_front();
    if (!large) peer.reading += operation.length;
    operation.awaits_done = true;
    Frame frame = operation.request;
    frame.payload = static_cast<uint32_t>(operation.segment_bytes().size());
    std::ranges::copy(operation.segment_bytes(), peer.outbox->add(frame));
  }
  peer.start_sending(Outbox::Coming::kUnknown);
}

ssize_t Initiator::start_atomic(const OperationRequest& request, Peer& peer) {
  const size_t operands = request.local.bytes();
  const size_t payload = operands + request.comparands.bytes();
  if (!peer.make_room(payload)) return -FI_EAGAIN;
  Operation& operation =
      state_.operations.begin(peer, Operation::Kind::kAtomic, request.results,
                              Bounce::into(request.results, request.results.bytes()));
  operation.pending = completion_for(request);
  operation.awaits_done = true;
  Frame frame = frame_of(request, FrameKind::kAtomic, payload, operation.number);
  // An atomic read has no operands: the length is that of the result.
  if (operands == 0) frame.length = request.results.bytes();
  uint8_t* const place = peer.outbox->add(frame);
  (void)request.local.copy_out({place, operands});  // host memory
  (void)request.comparands.copy_out({place + operands, payload - operands});
  peer.start_sending(coming(request));
  return 0;
}

FrameResult Initiator::on_clear_to_send(Peer& peer, const FrameView& view) {
  const Frame& frame = view.frame;
  Operation* const operation = state_.operations.find(frame.id, peer);
  const bool expected = operation != nullptr && !operation->cts_received && operation->offered;
  const bool sound = expected && frame.length <= operation->length &&
                     operation->take_segments(view.payload, frame.length);
  if (!sound) return FrameResult::kProtocolError;
  operation->cts_received = true;
  operation->remote_id = frame.address;
  operation->pending.completion.len = frame.length;
  peer.queued_puts.push_back(frame.id);
  bulk_.start_queued_puts(peer);
  return FrameResult::kHandled;
}

FrameResult Initiator::on_done(Peer& peer, const FrameView& view) {
  Operation* const operation = state_.operations.find(view.frame.id, peer);
  if (operation == nullptr || !operation->awaits_done) return FrameResult::kProtocolError;
  const int error = error_of(view.frame.data);
  const bool reads =
      operation->kind == Operation::Kind::kRead || operation->kind == Operation::Kind::kAtomic;
  const bool eager = operation->length <= kEagerBytes;
  if (operation->kind == Operation::Kind::kRead && eager) peer.reading -= operation->length;
  if (error == 0 && reads && eager) {
    if (view.payload.size() != operation->length) return FrameResult::kProtocolError;
    (void)operation->local.copy_in(view.payload);  // host memory, or a bounce buffer
  }
  const bool direct =
      operation->kind == Operation::Kind::kRead && (operation->request.flags & kDirect) != 0;
  if (error == 0 && direct) {
    bulk_.on_direct_reply(*operation, view);
    return FrameResult::kHandled;
  }
  operation->awaits_done = false;
  if (operation->offered && !operation->cts_received) operation->puts_issued = true;
  if (error != 0) {
    operation->pending.completion.fail(
        error, "the peer refuses the access: check key, bounds and access flags");
  }
  if (error != 0 && operation->outstanding_puts == 0) {
    state_.operations.end(*operation);
  } else {
    state_.operations.end_if_done(*operation);
  }
  return FrameResult::kHandled;
}

}  // namespace pacecar::fabric
