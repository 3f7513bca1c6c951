#include "net_plugin/libfabric/endpoint/bulk_transfers.h"

#include <algorithm>

namespace pacecar::fabric {
namespace {

// Bytes that are read from one peer in one turn: half a millisecond, so that others wait little.
constexpr uint64_t kTurnBytes = uint64_t{4} << 20;

bool read_part(Operation& operation, uint64_t bytes) {
  const bool read = operation.peer->memory->read(
      {operation.segments.data(), operation.segment_count}, operation.local.all(),
      {operation.bytes_read, bytes}, operation.guard);
  operation.bytes_read += bytes;
  return read;
}

}  // namespace

void BulkTransfers::fetch(Operation& operation, const FrameView& offer) {
  const bool readable = (offer.frame.flags & kDirect) != 0 && operation.peer->memory &&
                        operation.take_segments(offer.payload, offer.frame.length);
  readable ? start_direct_read(operation) : clear_to_send(operation);
}

void BulkTransfers::on_direct_reply(Operation& operation, const FrameView& reply) {
  operation.awaits_done = false;
  operation.guard = {reply.frame.address, reply.frame.tag};
  if (!reply.payload.empty()) operation.request.flags |= kRepeated;
  const bool readable =
      operation.peer->memory && operation.take_segments(reply.payload, operation.length);
  readable ? start_direct_read(operation) : finish_direct_read(operation, false);
}

// Up to kEagerBytes are read at once, as operations of so few take effect in the order of frames.
void BulkTransfers::start_direct_read(Operation& operation) {
  if (operation.length <= kEagerBytes) {
    return finish_direct_read(operation, read_part(operation, operation.length));
  }
  std::deque<uint64_t>& reads = operation.peer->direct_reads;
  operation.reads_directly = true;
  reads.push_back(operation.number);
  if (reads.size() == 1) continue_direct_reads(*operation.peer);
}

void BulkTransfers::continue_direct_reads(Peer& peer) {
  std::deque<uint64_t>& reads = peer.direct_reads;
  for (uint64_t budget = kTurnBytes; !reads.empty() && budget > 0;) {
    Operation* const operation = state_.operations.find(reads.front());
    bool whole = true;
    if (operation != nullptr) {  // else it has ended meanwhile
      const uint64_t part = std::min(budget, operation->length - operation->bytes_read);
      budget -= part;
      whole = read_part(*operation, part);
      if (whole && operation->bytes_read < operation->length) return;
    }
    reads.pop_front();
    if (operation != nullptr) finish_direct_read(*operation, whole);
  }
}

void BulkTransfers::finish_direct_read(Operation& operation, bool whole) {
  operation.reads_directly = false;
  if (operation.kind != Operation::Kind::kRead) {
    return whole ? on_all_bytes(operation) : clear_to_send(operation);
  }
  if (whole) return state_.operations.end_if_done(operation);
  operation.request.flags &= static_cast<uint8_t>(~kDirect);
  operation.direct_failed = true;
  operation.peer->queued_reads.push_back(operation.number);
}

// Replies to an offer with the segments to put into: as many bytes as there is room for.
void BulkTransfers::clear_to_send(Operation& operation) {
  Peer& peer = *operation.peer;
  const uint64_t offer = operation.request.id;
  if (!state_.operations.describe_segments(operation)) {
    if (operation.kind == Operation::Kind::kServeWrite) {
      state_.operations.end(operation, FI_ENOMEM);
      return peer.reply_status(offer, Status::kNoAccess);
    }
    operation.length = 0;
    operation.pending.completion.fail(FI_ENOMEM, "memory cannot be registered: see the log");
  }
  peer.reply({.kind = FrameKind::kClearToSend,
              .length = operation.length,
              .id = offer,
              .address = operation.number},
             operation.segment_bytes());
}

FrameResult BulkTransfers::on_placed(const Peer& peer, const Frame& frame) {
  Operation* const operation = state_.operations.find(frame.id, peer);
  const bool cts_sent = operation != nullptr && (operation->kind == Operation::Kind::kReceive ||
                                                 operation->kind == Operation::Kind::kServeWrite);
  if (!cts_sent || operation->reads_directly) return FrameResult::kProtocolError;
  on_all_bytes(*operation);
  return FrameResult::kHandled;
}

// All bytes of an offer are in our memory.
void BulkTransfers::on_all_bytes(Operation& operation) {
  Peer& peer = *operation.peer;
  const Frame offer = operation.request;
  const bool write = operation.kind == Operation::Kind::kServeWrite;
  Status status = Status::kOk;
  if (write) {
    if (const auto delivered = operation.deliver(); !delivered) {
      log_warning(delivered.error().message);
      status = Status::kNoAccess;
    } else if (operation.target != nullptr) {
      state_.completions.report_remote_write(*operation.target, offer, state_.peers.source_of(peer),
                                             FI_RMA);
    }
  }
  state_.operations.end(operation);
  if (write || (offer.flags & kWantsDone) != 0) peer.reply_status(offer.id, status);
}

Result<void> BulkTransfers::finish_puts(Peer& peer) {
  if (peer.puts == nullptr) return {};
  return peer.puts->finish([this](uint64_t number) {
    Operation* const operation = state_.operations.find(number);
    if (operation == nullptr) return;
    --operation->outstanding_puts;
    state_.operations.end_if_done(*operation);
  });
}

void BulkTransfers::start_queued_puts(Peer& peer) {
  if (peer.puts == nullptr) {
    const bool first = !peer.queued_puts.empty() && peer.connecting_puts == nullptr;
    if (!first || !peer.outbox->is_open()) return;
    auto connecting = state_.domain.pacecar().connect(state_.domain.nic(), peer.remote_listener,
                                                      ConnectOptions{.puts = true});
    if (!connecting) return peer.cannot_send(connecting.error());
    peer.connecting_puts = std::move(*connecting);
    return;
  }
  while (!peer.is_lost() && !peer.queued_puts.empty() && peer.puts->has_room()) {
    Operation* const operation = state_.operations.find(peer.queued_puts.front());
    peer.queued_puts.pop_front();
    if (operation != nullptr) put_all(*operation);
  }
  if (auto started = peer.puts->start(); !started) peer.cannot_send(started.error());
}

// Issues the operation's puts into the peer's segments, followed by kPlaced or kDone.
void BulkTransfers::put_all(Operation& operation) {
  Peer& peer = *operation.peer;
  const size_t nic = peer.puts->nic();
  bool failed = false;
  pair_pieces(
      operation.local.count, [&](size_t i) { return operation.local.pieces[i].size; },
      operation.segment_count, [&](size_t j) { return operation.segments[j].length; },
      [&](size_t i, uint64_t from, size_t j, uint64_t to, uint64_t bytes) {
        const auto memory = state_.operations.memory_for(operation, i, nic);
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
    return peer.fail(Failure::When::kNow, FI_ENOMEM,
                     "memory cannot be registered: see the log line before this one");
  }
  const bool reply = operation.kind == Operation::Kind::kServeRead;
  peer.puts->send_frame(
      {.kind = reply ? FrameKind::kDone : FrameKind::kPlaced, .id = operation.remote_id});
  state_.operations.end_if_done(operation);
}

}  // namespace pacecar::fabric
