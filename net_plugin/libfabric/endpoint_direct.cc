// Large operations between processes of one host: the side that receives the bytes reads them from
// the other's memory. Where that fails, the operation goes through the NIC as between hosts.
#include <algorithm>
#include <cstring>

#include "net_plugin/libfabric/endpoint.h"

namespace pacecar::fabric {

// Bytes that are read from one peer in one turn. They take half a millisecond, so that others do
// not wait for long.
constexpr uint64_t kTurnBytes = uint64_t{4} << 20;

std::vector<uint8_t> Endpoint::own_segments(const Local& local) {
  std::vector<uint8_t> bytes;
  for (const Piece& piece : local.all()) {
    const RemoteSegment segment{reinterpret_cast<uint64_t>(piece.data), piece.size, 0};
    const auto* const first = reinterpret_cast<const uint8_t*>(&segment);
    bytes.insert(bytes.end(), first, first + sizeof segment);
  }
  return bytes;
}

// Stores the peer's segments with the operation. False: they are not of `length` bytes.
bool Endpoint::take_segments(Operation& operation, std::span<const uint8_t> payload,
                             uint64_t length) {
  const size_t count = payload.size() / sizeof(RemoteSegment);
  const bool whole = payload.size() == count * sizeof(RemoteSegment) && count <= kMaxSegments;
  if (!whole) return false;
  std::memcpy(operation.segments.data(), payload.data(), payload.size());
  operation.segment_count = count;
  for (size_t i = 0; i < count; ++i) {
    if (operation.segments[i].length > length) return false;
    length -= operation.segments[i].length;
  }
  return length == 0;
}

// Whether the bytes of an offer are read from the peer's memory, where its segments are.
bool Endpoint::can_read_directly(Operation& operation, const FrameView& offer) const {
  return (offer.frame.flags & kDirect) != 0 && peers_[operation.peer]->memory &&
         take_segments(operation, offer.payload, offer.frame.length);
}

// Up to kEagerBytes are read at once, as operations of so few take effect in the order of frames.
void Endpoint::start_direct_read(uint64_t number) {
  Operation& operation = *operations_.find(number);
  if (operation.length <= kEagerBytes) {
    const bool whole = read_part(operation, operation.length);
    return finish_direct_read(number, whole);
  }
  const PeerId peer = operation.peer;
  operation.reads_directly = true;
  peers_[peer]->direct_reads.push_back(number);
  if (peers_[peer]->direct_reads.size() == 1) continue_direct_reads(peer);
}

void Endpoint::continue_direct_reads(PeerId number) {
  std::deque<uint64_t>& reads = peers_[number]->direct_reads;
  for (uint64_t budget = kTurnBytes; !reads.empty() && budget > 0;) {
    const uint64_t id = reads.front();
    Operation* const operation = operations_.find(id);
    bool whole = true;
    if (operation != nullptr) {  // else it has ended meanwhile
      const uint64_t part = std::min(budget, operation->length - operation->bytes_read);
      budget -= part;
      whole = read_part(*operation, part);
      if (whole && operation->bytes_read < operation->length) return;
    }
    reads.pop_front();
    if (operation != nullptr) finish_direct_read(id, whole);
  }
}

bool Endpoint::read_part(Operation& operation, uint64_t bytes) const {
  const bool read = peers_[operation.peer]->memory->read(
      {operation.segments.data(), operation.segment_count}, operation.local.all(),
      {operation.bytes_read, bytes}, operation.guard);
  operation.bytes_read += bytes;
  return read;
}

void Endpoint::finish_direct_read(uint64_t number, bool whole) {
  Operation& operation = *operations_.find(number);
  operation.reads_directly = false;
  if (operation.kind != Operation::Kind::kRead) {
    return whole ? on_all_bytes(number) : clear_to_send(number);
  }
  if (whole) return end_if_done(number, operation);
  operation.request.flags &= static_cast<uint8_t>(~kDirect);
  operation.direct_failed = true;
  peers_[operation.peer]->queued_reads.push_back(number);
}

// The reply to a large read whose initiator can read our memory, if it is on this host.
void Endpoint::reply_with_segments(PeerId number, const Frame& request, const Local& memory) {
  const bool readable = peers_[number]->reads_our_memory() && !on_device(memory);
  if (!readable) return reply(number, {.kind = FrameKind::kDone, .id = request.id});
  count(FI_REMOTE_READ, false);
  const std::atomic<uint64_t>& guard = memory.regions[0]->guard;
  reply(number,
        {.kind = FrameKind::kDone,
         .tag = guard,
         .id = request.id,
         .address = reinterpret_cast<uint64_t>(&guard)},
        own_segments(memory));
}

// The target's reply to our large read.
void Endpoint::on_direct_reply(uint64_t number, const FrameView& reply) {
  Operation& operation = *operations_.find(number);
  operation.awaits_done = false;
  operation.guard = {reply.frame.address, reply.frame.tag};
  if (!reply.payload.empty()) operation.request.flags |= kRepeated;
  const bool readable =
      peers_[operation.peer]->memory && take_segments(operation, reply.payload, operation.length);
  if (readable) return start_direct_read(number);
  finish_direct_read(number, false);
}

}  // namespace pacecar::fabric
