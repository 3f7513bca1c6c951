#include "net_plugin/libfabric/endpoint/target.h"

#include <algorithm>
#include <cstring>

#include "net_plugin/libfabric/core/atomics.h"

namespace pacecar::fabric {
namespace {

constexpr uint32_t kMaxServedPerPeer = 1024;  // so that a peer leaves room for others

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

tl::expected<Local, Status> Target::resolve(const Frame& request) const {
  const auto at = state_.domain.regions.find(request.tag);
  if (at == state_.domain.regions.end()) return tl::unexpected(Status::kNoKey);
  MemoryRegion& region = *at->second;
  uint8_t* const bytes = region.find(request.address, request.length);
  const bool allowed = (region.access & access_of(request)) != 0;
  if (bytes == nullptr || !allowed) return tl::unexpected(Status::kNoAccess);
  return Local::one(bytes, request.length, &region);
}

FrameResult Target::on_request(Peer& peer, const FrameView& view) {
  const Frame& frame = view.frame;
  const FrameKind kind = frame.kind;
  const bool whole = kind == FrameKind::kWrite  ? frame.length == view.payload.size()
                     : kind == FrameKind::kRead ? has_sound_segments(view)
                                                : true;
  if (!whole) return FrameResult::kProtocolError;
  const bool completes = (frame.flags & kHasData) != 0;
  if (state_.operations.full() || peer.serving == kMaxServedPerPeer ||
      (completes && state_.completions.receive().full())) {
    return FrameResult::kNoRoom;
  }
  const auto memory = resolve(frame);
  std::optional<Status> status = memory ? Status::kOk : memory.error();
  if (kind == FrameKind::kAtomic && !is_valid_atomic(view)) status = Status::kUnsupported;
  if (status == Status::kOk) {
    status = kind == FrameKind::kWrite        ? write(peer, view, *memory)
             : kind == FrameKind::kWriteOffer ? accept_offer(peer, view, *memory)
             : kind == FrameKind::kRead       ? read(peer, view, *memory)
                                              : apply(peer, view, *memory);
  }
  if (status) peer.reply_status(frame.id, *status);
  return FrameResult::kHandled;
}

std::optional<Status> Target::write(Peer& peer, const FrameView& view, const Local& memory) {
  if (const auto copied = memory.copy_in(view.payload); !copied) {
    return no_access(copied.error());
  }
  state_.completions.report_remote_write(*memory.regions[0], view.frame,
                                         state_.peers.source_of(peer), FI_RMA);
  return Status::kOk;
}

std::optional<Status> Target::accept_offer(Peer& peer, const FrameView& view, const Local& memory) {
  Operation& operation = state_.operations.begin(peer, Operation::Kind::kServeWrite, memory,
                                                 Bounce::into(memory, view.frame.length));
  operation.request = view.frame;
  operation.remote_id = view.frame.id;
  operation.target = memory.regions[0];
  bulk_.fetch(operation, view);
  return std::nullopt;
}

std::optional<Status> Target::read(Peer& peer, const FrameView& view, const Local& memory) {
  const Frame& frame = view.frame;
  if ((frame.flags & kDirect) != 0) {
    reply_with_segments(peer, frame, memory);
    return std::nullopt;
  }
  auto bounce = Bounce::with(memory);
  if (!bounce) return no_access(bounce.error());
  if ((frame.flags & kRepeated) == 0) state_.completions.report_remote_read();
  if (frame.length <= kEagerBytes) {
    const uint8_t* const bytes =
        *bounce != nullptr ? (*bounce)->host.data() : memory.pieces[0].data;
    peer.reply({.kind = FrameKind::kDone, .id = frame.id}, {bytes, frame.length});
    return std::nullopt;
  }
  Operation& operation =
      state_.operations.begin(peer, Operation::Kind::kServeRead, memory, std::move(*bounce));
  operation.remote_id = frame.id;
  operation.segment_count = view.payload.size() / sizeof(RemoteSegment);
  std::memcpy(operation.segments.data(), view.payload.data(), view.payload.size());
  peer.queued_puts.push_back(operation.number);
  return std::nullopt;
}

// The reply to a large read whose initiator can read our memory, if it is on this host.
void Target::reply_with_segments(Peer& peer, const Frame& request, const Local& memory) {
  const bool readable = peer.reads_our_memory() && !memory.on_device();
  if (!readable) return peer.reply({.kind = FrameKind::kDone, .id = request.id});
  state_.completions.report_remote_read();
  const std::atomic<uint64_t>& guard = memory.regions[0]->guard;
  peer.reply({.kind = FrameKind::kDone,
              .tag = guard,
              .id = request.id,
              .address = reinterpret_cast<uint64_t>(&guard)},
             memory.segments());
}

// An atomic. GPU memory is copied to the host, changed there and copied back.
std::optional<Status> Target::apply(Peer& peer, const FrameView& view, const Local& memory) {
  const Frame& frame = view.frame;
  const bool fetches = (frame.flags & kFetches) != 0;
  const uint8_t* const operands = view.payload.data();
  std::array<uint8_t, kAtomicBytes> result;
  const auto copy = Bounce::with(memory);
  if (!copy) return no_access(copy.error());
  uint8_t* const at = *copy != nullptr ? (*copy)->host.data() : memory.pieces[0].data;
  apply_atomic(frame.operation, frame.datatype, frame.length / datatype_bytes(frame.datatype), at,
               reads(frame) ? nullptr : operands,
               (frame.flags & kCompares) != 0 ? operands + frame.length : nullptr,
               fetches ? result.data() : nullptr);
  if (*copy != nullptr && !reads(frame)) {
    if (auto copied = memory.copy_in({at, frame.length}); !copied) {
      return no_access(copied.error());
    }
  }
  if (reads(frame)) {
    state_.completions.report_remote_read();
  } else {
    state_.completions.report_remote_write(*memory.regions[0], frame, state_.peers.source_of(peer),
                                           FI_ATOMIC);
  }
  peer.reply({.kind = FrameKind::kDone, .id = frame.id},
             {result.data(), fetches ? frame.length : 0});
  return std::nullopt;
}

// Reads that are not served yet are refused, and writes whose bytes we are reading; no bounce
// buffer is copied to it. Other operations go on, and register their memory for themselves.
void Target::forget(MemoryRegion& region) {
  using Kind = Operation::Kind;
  state_.operations.for_each([&](Operation& operation) {
    bool uses = operation.local.forget(region);
    if (operation.target == &region) operation.target = nullptr;
    if (operation.bounce && std::ranges::count(operation.bounce->device.regions, &region) > 0) {
      operation.bounce->device = Local();  // is not copied to
      uses = true;
    }
    const bool unserved = (operation.kind == Kind::kServeRead && !operation.puts_issued) ||
                          (operation.kind == Kind::kServeWrite && operation.reads_directly);
    if (!uses || !unserved) return;
    Peer& peer = *operation.peer;
    const uint64_t request = operation.remote_id;
    state_.operations.end(operation);
    peer.reply_status(request, Status::kNoKey);
  });
}

}  // namespace pacecar::fabric
