// Reading the memory of a peer on this host.
#include <algorithm>
#include <cstring>
#include <utility>

#include "net_plugin/libfabric/endpoint.h"

namespace pacecar::fabric {
namespace {

// Large operations: the side that receives the bytes reads them from the other's memory. Where that
// fails, the operation goes through the NIC as between hosts.

// Bytes that are read from one peer in one turn. They take half a millisecond, so that others do
// not wait for long.
constexpr uint64_t kTurnBytes = uint64_t{4} << 20;

bool read_part(Operation& operation, uint64_t bytes) {
  const bool read = operation.peer->memory->read(
      {operation.segments.data(), operation.segment_count}, operation.local.all(),
      {operation.bytes_read, bytes}, operation.guard);
  operation.bytes_read += bytes;
  return read;
}

}  // namespace

Result<void> Operation::deliver() {
  if (bounce == nullptr) return {};
  const Local device = std::exchange(bounce->device, Local());
  return device.copy_in({bounce->host.data(), bounce->bytes});
}

bool Operation::take_segments(std::span<const uint8_t> payload, uint64_t bytes) {
  const size_t count = payload.size() / sizeof(RemoteSegment);
  const bool whole = payload.size() == count * sizeof(RemoteSegment) && count <= kMaxSegments;
  if (!whole) return false;
  std::memcpy(segments.data(), payload.data(), payload.size());
  segment_count = count;
  for (size_t i = 0; i < count; ++i) {
    if (segments[i].length > bytes) return false;
    bytes -= segments[i].length;
  }
  return bytes == 0;
}

void Endpoint::fetch(Operation& operation, const FrameView& offer) {
  const bool readable = (offer.frame.flags & kDirect) != 0 && operation.peer->memory &&
                        operation.take_segments(offer.payload, offer.frame.length);
  readable ? start_direct_read(operation) : clear_to_send(operation);
}

// Up to kEagerBytes are read at once, as operations of so few take effect in the order of frames.
void Endpoint::start_direct_read(Operation& operation) {
  if (operation.length <= kEagerBytes) {
    return finish_direct_read(operation, read_part(operation, operation.length));
  }
  std::deque<uint64_t>& reads = operation.peer->direct_reads;
  operation.reads_directly = true;
  reads.push_back(operation.number);
  if (reads.size() == 1) continue_direct_reads(*operation.peer);
}

void Endpoint::continue_direct_reads(Peer& peer) {
  std::deque<uint64_t>& reads = peer.direct_reads;
  for (uint64_t budget = kTurnBytes; !reads.empty() && budget > 0;) {
    Operation* const operation = operations_.find(reads.front());
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

void Endpoint::finish_direct_read(Operation& operation, bool whole) {
  operation.reads_directly = false;
  if (operation.kind != Operation::Kind::kRead) {
    return whole ? on_all_bytes(operation) : clear_to_send(operation);
  }
  if (whole) return end_if_done(operation);
  operation.request.flags &= static_cast<uint8_t>(~kDirect);
  operation.direct_failed = true;
  operation.peer->queued_reads.push_back(operation.number);
}

// The reply to a large read whose initiator can read our memory, if it is on this host.
void Endpoint::reply_with_segments(Peer& peer, const Frame& request, const Local& memory) {
  const bool readable = peer.reads_our_memory() && !memory.on_device();
  if (!readable) return reply(peer, {.kind = FrameKind::kDone, .id = request.id});
  count(FI_REMOTE_READ, false);
  const std::atomic<uint64_t>& guard = memory.regions[0]->guard;
  reply(peer,
        {.kind = FrameKind::kDone,
         .tag = guard,
         .id = request.id,
         .address = reinterpret_cast<uint64_t>(&guard)},
        memory.segments());
}

// The target's reply to our large read.
void Endpoint::on_direct_reply(Operation& operation, const FrameView& reply) {
  operation.awaits_done = false;
  operation.guard = {reply.frame.address, reply.frame.tag};
  if (!reply.payload.empty()) operation.request.flags |= kRepeated;
  const bool readable =
      operation.peer->memory && operation.take_segments(reply.payload, operation.length);
  readable ? start_direct_read(operation) : finish_direct_read(operation, false);
}

}  // namespace pacecar::fabric
