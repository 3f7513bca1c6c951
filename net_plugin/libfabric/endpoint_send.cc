// Operations that an endpoint initiates: sends, writes, reads and atomics.
#include <algorithm>
#include <cstring>

#include "net_plugin/libfabric/endpoint.h"

namespace pacecar::fabric {
namespace {

constexpr uint64_t kCompleteAtPeer =
    FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_COMMIT_COMPLETE;

uint64_t completion_flags(const OperationRequest& request) {
  switch (request.frame.kind) {
    case FrameKind::kWrite:
      return FI_RMA | FI_WRITE;
    case FrameKind::kRead:
      return FI_RMA | FI_READ;
    case FrameKind::kAtomic:
      return FI_ATOMIC | ((request.frame.flags & kFetches) != 0 ? FI_READ : FI_WRITE);
    default:
      return FI_SEND | ((request.frame.flags & kTagged) != 0 ? FI_TAGGED : FI_MSG);
  }
}

Outbox::Coming coming(const OperationRequest& request) {
  return (request.flags & FI_MORE) != 0 ? Outbox::Coming::kMore : Outbox::Coming::kUnknown;
}

bool is_copied(const Peer& peer, const OperationRequest& request) {
  if (request.frame.kind == FrameKind::kAtomic) return true;
  // Not writes: these are ordered up to kEagerBytes, and one whose direct read fails would be late.
  const bool direct = request.frame.kind == FrameKind::kMessage && peer.reads_our_memory() &&
                      !request.inject && (request.flags & FI_INJECT) == 0;
  const size_t most = direct ? kDirectEagerBytes : kEagerBytes;
  return request.frame.kind != FrameKind::kRead && request.local.bytes() <= most;
}

}  // namespace

PendingCompletion Endpoint::completion_for(const OperationRequest& request) const {
  PendingCompletion pending;
  pending.completion.op_context = request.context;
  pending.completion.flags = completion_flags(request);
  pending.queued_on_success =
      !request.inject && (!tx_selective_ || (request.flags & FI_COMPLETION) != 0);
  return pending;
}

ssize_t Endpoint::start(const OperationRequest& request) {
  if (!enabled()) return -FI_EOPBADSTATE;
  const auto number = peer_number(request.to);
  if (!number) return -FI_EINVAL;
  Peer& peer = *peers_[*number];
  const auto full = [&] {
    return (tx_queue_ != nullptr && tx_queue_->full()) || initiated_ >= tx_size_ ||
           operations_.full() || peer.held_completions.size() >= tx_size_;
  };
  // Reads up to kEagerBytes are ordered before later writes and atomics (FI_ORDER_WAR).
  const auto overtakes = [&] {
    return (request.frame.kind == FrameKind::kWrite || request.frame.kind == FrameKind::kAtomic) &&
           std::ranges::any_of(peer.queued_reads, [&](uint64_t read) {
             return operations_.find(read)->length <= kEagerBytes;
           });
  };
  if (full() || overtakes()) domain_.progress();
  if (full() || overtakes()) return -FI_EAGAIN;
  call(peer);
  const bool copied = is_copied(peer, request);
  if (copied && (request.local.on_device() || request.comparands.on_device())) {
    return start_from_host(request, peer);
  }
  switch (request.frame.kind) {
    case FrameKind::kRead:
      return start_read(request, peer);
    case FrameKind::kAtomic:
      return start_atomic(request, peer);
    default:
      return copied ? start_eagerly(request, peer) : start_offered(request, peer);
  }
}

// GPU memory is copied to a bounce buffer first, and from there into the frame.
ssize_t Endpoint::start_from_host(const OperationRequest& request, Peer& peer) {
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

namespace {

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

}  // namespace

// Whether a frame with this payload can be added to the outbox, after progress if need be.
bool Endpoint::make_room(const Peer& peer, size_t payload) {
  if (!peer.outbox->has_room(payload)) domain_.progress();
  return peer.outbox->has_room(payload);
}

Operation& Endpoint::begin(Peer& peer, Operation::Kind kind, const Local& local,
                           std::unique_ptr<Bounce> bounce) {
  const auto [number, operation] = operations_.take();
  operation->number = number;
  operation->peer = &peer;
  operation->kind = kind;
  operation->local = bounce != nullptr ? bounce->memory() : local;
  operation->length = operation->local.bytes();
  operation->bounce = std::move(bounce);
  if (operation->initiated()) ++initiated_;
  if (operation->serves()) ++peer.serving;
  return *operation;
}

ssize_t Endpoint::start_eagerly(const OperationRequest& request, Peer& peer) {
  const size_t bytes = request.local.bytes();
  if (!make_room(peer, bytes)) return -FI_EAGAIN;
  const bool write = request.frame.kind == FrameKind::kWrite;
  const bool delivered = !request.inject && (request.flags & kCompleteAtPeer) != 0;
  Operation* operation = nullptr;
  if (write || delivered) {
    operation = &begin(peer, write ? Operation::Kind::kWrite : Operation::Kind::kDelivery);
    operation->pending = completion_for(request);
    operation->awaits_done = true;
  }
  Frame frame = frame_of(request, request.frame.kind, bytes, operation ? operation->number : 0);
  if (!delivered) frame.flags &= static_cast<uint8_t>(~kWantsDone);
  (void)request.local.copy_out({peer.outbox->add(frame), bytes});  // host memory
  if (operation == nullptr) {
    // It completes when the peer is connected: from then on the frame will be sent. With a lost
    // peer it fails.
    PendingCompletion pending = completion_for(request);
    peer.can_send() ? report(pending, tx_queue_)
                    : peer.held_completions.push_back(std::move(pending));
  }
  start_sending(peer, coming(request));
  return 0;
}

void Endpoint::start_sending(Peer& peer, Outbox::Coming coming) {
  Outbox& outbox = *peer.outbox;
  if (const auto started = outbox.start(coming); !started) {
    return cannot_send(peer, started.error());
  }
  if (outbox.has_unsent_frames()) domain_.progress_until_sent();
}

ssize_t Endpoint::start_offered(const OperationRequest& request, Peer& peer) {
  if (!make_room(peer, kMaxSegments * sizeof(RemoteSegment))) return -FI_EAGAIN;
  auto bounce = Bounce::with(request.local);
  if (!bounce) {
    log_warning(bounce.error().message);
    return -FI_EIO;
  }
  const bool write = request.frame.kind == FrameKind::kWrite;
  Operation& operation = begin(peer, write ? Operation::Kind::kWrite : Operation::Kind::kOffer,
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
  start_sending(peer, Outbox::Coming::kUnknown);
  return 0;
}

ssize_t Endpoint::start_read(const OperationRequest& request, Peer& peer) {
  Operation& operation = begin(peer, Operation::Kind::kRead, request.local,
                               Bounce::into(request.local, request.local.bytes()));
  operation.pending = completion_for(request);
  operation.request = frame_of(request, FrameKind::kRead, 0, operation.number);
  peer.queued_reads.push_back(operation.number);
  start_queued_reads(peer);
  return 0;
}

// A large read waits for the peer's connection to us, because the peer serves it by puts.
void Endpoint::start_queued_reads(Peer& peer) {
  while (!peer.queued_reads.empty() &&
         peer.outbox->has_room(kMaxSegments * sizeof(RemoteSegment))) {
    Operation& operation = *operations_.find(peer.queued_reads.front());
    Frame frame = operation.request;
    const bool large = operation.length > kEagerBytes;
    if (large && peer.reads_our_memory() && !operation.direct_failed) {
      operation.request.flags |= kDirect;
      frame.flags |= kDirect;
    } else if (large) {
      if (peer.frames.source == nullptr) break;
      const auto segments = describe_segments(operation);
      if (!segments) {
        peer.queued_reads.pop_front();
        end(operation, FI_ENOMEM, "memory cannot be registered: see the log line before this one");
        continue;
      }
      frame.payload = static_cast<uint32_t>(*segments * sizeof(RemoteSegment));
    }
    peer.queued_reads.pop_front();
    operation.awaits_done = true;
    std::memcpy(peer.outbox->add(frame), operation.segments.data(), frame.payload);
  }
  start_sending(peer, Outbox::Coming::kUnknown);
}

ssize_t Endpoint::start_atomic(const OperationRequest& request, Peer& peer) {
  const size_t operands = request.local.bytes();
  const size_t payload = operands + request.comparands.bytes();
  if (!make_room(peer, payload)) return -FI_EAGAIN;
  Operation& operation = begin(peer, Operation::Kind::kAtomic, request.results,
                               Bounce::into(request.results, request.results.bytes()));
  operation.pending = completion_for(request);
  operation.awaits_done = true;
  Frame frame = frame_of(request, FrameKind::kAtomic, payload, operation.number);
  // An atomic read has no operands: the length is that of the result.
  if (operands == 0) frame.length = request.results.bytes();
  uint8_t* const place = peer.outbox->add(frame);
  (void)request.local.copy_out({place, operands});  // host memory
  (void)request.comparands.copy_out({place + operands, payload - operands});
  start_sending(peer, coming(request));
  return 0;
}

// --- memory, and puts into the peer's memory ---

// The registration of a piece of the operation's memory: of the region in its descriptor, if that
// covers it; else it is registered for this operation.
Result<const Memory*> Endpoint::memory_for(Operation& operation, size_t piece, size_t nic) {
  const Piece& at = operation.local.pieces[piece];
  MemoryRegion* const region = operation.local.regions[piece];
  if (region != nullptr && at.data >= region->base &&
      at.size <= region->length - static_cast<uint64_t>(at.data - region->base)) {
    return region->on(nic);
  }
  operation.registered_nic = nic;
  if (operation.registered[piece] == nullptr) {
    auto memory = domain_.pacecar().register_memory(nic, at.data, at.size);
    if (!memory) return memory;
    operation.registered[piece] = *memory;
  }
  return operation.registered[piece];
}

// Fills the operation's segments with the first `length` bytes of its memory; returns how many.
// nullopt: the memory cannot be registered.
std::optional<size_t> Endpoint::describe_segments(Operation& operation) {
  size_t count = 0;
  uint64_t bytes = operation.length;
  for (size_t i = 0; i < operation.local.count && bytes > 0; ++i) {
    const Piece& piece = operation.local.pieces[i];
    const uint64_t part = std::min<uint64_t>(piece.size, bytes);
    if (part == 0) continue;
    const auto memory = memory_for(operation, i, domain_.nic());
    const auto window = memory ? window_of(**memory) : tl::unexpected(memory.error());
    if (!window) {
      log_warning(window.error().message);
      return std::nullopt;
    }
    const bool own = operation.registered[i] != nullptr;
    const auto offset =
        own ? 0 : static_cast<uint64_t>(piece.data - operation.local.regions[i]->base);
    operation.segments[count++] = {window->address + offset, part, window->key};
    bytes -= part;
  }
  operation.segment_count = count;
  return count;
}

void Endpoint::start_queued_puts(Peer& peer) {
  if (peer.puts == nullptr) {
    const bool first = !peer.queued_puts.empty() && peer.connecting_puts == nullptr;
    if (!first || !peer.outbox->is_open()) return;
    auto connecting = domain_.pacecar().connect(domain_.nic(), peer.remote_listener,
                                                ConnectOptions{.puts = true});
    if (!connecting) return cannot_send(peer, connecting.error());
    peer.connecting_puts = std::move(*connecting);
    return;
  }
  while (peer.puts != nullptr && !peer.queued_puts.empty() && peer.puts->has_room()) {
    Operation* const operation = operations_.find(peer.queued_puts.front());
    peer.queued_puts.pop_front();
    if (operation != nullptr) put_all(*operation);
  }
  if (peer.puts == nullptr) return;  // the peer was failed
  if (auto started = peer.puts->start(); !started) cannot_send(peer, started.error());
}

// Issues the operation's puts into the peer's segments, followed by kPlaced or kDone.
void Endpoint::put_all(Operation& operation) {
  Peer& peer = *operation.peer;
  const size_t nic = peer.puts->nic();
  bool failed = false;
  pair_pieces(
      operation.local.count, [&](size_t i) { return operation.local.pieces[i].size; },
      operation.segment_count, [&](size_t j) { return operation.segments[j].length; },
      [&](size_t i, uint64_t from, size_t j, uint64_t to, uint64_t bytes) {
        const auto memory = memory_for(operation, i, nic);
        if (!memory) log_warning(memory.error().message);
        if (!memory || failed) {
          failed = true;
          return;
        }
        const RemoteSegment& segment = operation.segments[j];
        peer.puts->put({.data = operation.local.pieces[i].data + from,
                        .size = bytes,
                        .memory = *memory,
                        .window = {.address = segment.address + to,
                                   .length = bytes,
                                   .key = static_cast<uint32_t>(segment.key)},
                        .operation = operation.number});
        ++operation.outstanding_puts;
      });
  operation.puts_issued = true;
  if (failed) {
    return fail_peer(peer, FI_ENOMEM,
                     "memory cannot be registered: see the log line before this one");
  }
  const bool reply = operation.kind == Operation::Kind::kServeRead;
  peer.puts->send_frame(
      {.kind = reply ? FrameKind::kDone : FrameKind::kPlaced, .id = operation.remote_id});
  end_if_done(operation);
}

// Ends the operation when the peer has confirmed it and all puts are acknowledged, so that no
// retransmission reads the memory any more.
void Endpoint::end_if_done(Operation& operation) {
  const bool puts = operation.kind == Operation::Kind::kOffer || operation.segment_count > 0;
  const bool serves = operation.kind == Operation::Kind::kServeRead;
  if (operation.outstanding_puts > 0 || operation.awaits_done) return;
  if ((puts || serves) && operation.kind != Operation::Kind::kRead && !operation.puts_issued)
    return;
  end(operation);
}

// Reports the completion and releases the operation. `error`: 0, or a fi_errno.
void Endpoint::end(Operation& operation, int error, const std::string& why) {
  const bool receives = operation.kind == Operation::Kind::kReceive;
  Completion& completion = operation.pending.completion;
  if (error != 0) {
    completion.fail(error, why);
  } else if (receives || completion.err == 0) {
    if (const auto delivered = operation.deliver(); !delivered) {
      completion.fail(FI_EIO, delivered.error().message);
    }
  }
  PendingCompletion pending = std::move(operation.pending);
  const bool serves = operation.serves();
  release(operation);
  if (!serves) report(pending, receives ? rx_queue_ : tx_queue_);
}

void Endpoint::release(Operation& operation) {
  if (operation.initiated()) --initiated_;
  if (operation.serves()) --operation.peer->serving;
  for (const Memory* memory : operation.registered) {
    if (memory != nullptr) {
      (void)domain_.pacecar().deregister_memory(operation.registered_nic, memory);
    }
  }
  operation.bounce.reset();
  operations_.release(operation.number);
}

}  // namespace pacecar::fabric
