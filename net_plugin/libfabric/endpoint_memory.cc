// Memory other than this process's own on the host: GPU memory (FI_HMEM), and that of a peer on
// this host.
#include <algorithm>
#include <cstring>
#include <utility>

#include "net_plugin/libfabric/endpoint.h"
#include "transport/base/return_if_error.h"

namespace pacecar::fabric {

// --- GPU memory ---

// Frames and puts use host memory, so GPU memory is copied there and back, with the domain's lock
// held. An operation's descriptors show which of its pieces are GPU memory.

bool Local::on_device() const {
  return std::ranges::any_of(std::span(regions).first(count),
                             [](const MemoryRegion* region) { return region && region->device; });
}

namespace {

// An operation may have pieces of host memory and of GPU memory.
Result<void> copy(CopyWay way, const Local& local, uint8_t* host, size_t bytes) {
  for (size_t i = 0; i < local.count && bytes > 0; ++i) {
    const Piece& piece = local.pieces[i];
    const size_t part = std::min(piece.size, bytes);
    if (part == 0) continue;
    if (local.regions[i] != nullptr && local.regions[i]->device != nullptr) {
      RETURN_IF_ERROR(local.regions[i]->device->copy_and_wait(way, piece.data, host, part));
    } else if (way == CopyWay::kToHost) {
      std::memcpy(host, piece.data, part);
    } else {
      std::memcpy(piece.data, host, part);
    }
    host += part;
    bytes -= part;
  }
  return {};
}

}  // namespace

Result<void> Local::copy_out(std::span<uint8_t> to) const {
  return copy(CopyWay::kToHost, *this, to.data(), to.size());
}

Result<void> Local::copy_in(std::span<const uint8_t> from) const {
  return copy(CopyWay::kToDevice, *this, const_cast<uint8_t*>(from.data()), from.size());
}

Result<std::unique_ptr<Bounce>> Bounce::with(const Local& local) {
  if (!local.on_device()) return nullptr;
  auto bounce = std::make_unique<Bounce>(local.bytes());
  RETURN_IF_ERROR(local.copy_out({bounce->host.data(), bounce->bytes}));
  return bounce;
}

std::unique_ptr<Bounce> Bounce::into(const Local& local, uint64_t bytes) {
  if (!local.on_device()) return nullptr;
  auto bounce = std::make_unique<Bounce>(bytes);
  bounce->device = local;
  return bounce;
}

// Copies received bytes from the bounce buffer to GPU memory; a second call copies nothing.
Result<void> Endpoint::deliver(Operation& operation) {
  if (operation.bounce == nullptr) return {};
  const Local device = std::exchange(operation.bounce->device, Local());
  return device.copy_in({operation.bounce->host.data(), operation.bounce->bytes});
}

// --- memory of a peer on this host ---

// Large operations: the side that receives the bytes reads them from the other's memory. Where that
// fails, the operation goes through the NIC as between hosts.

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
bool Endpoint::can_read_directly(Operation& operation, const FrameView& offer) {
  return (offer.frame.flags & kDirect) != 0 && operation.peer->memory &&
         take_segments(operation, offer.payload, offer.frame.length);
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

bool Endpoint::read_part(Operation& operation, uint64_t bytes) {
  const bool read = operation.peer->memory->read(
      {operation.segments.data(), operation.segment_count}, operation.local.all(),
      {operation.bytes_read, bytes}, operation.guard);
  operation.bytes_read += bytes;
  return read;
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
        own_segments(memory));
}

// The target's reply to our large read.
void Endpoint::on_direct_reply(Operation& operation, const FrameView& reply) {
  operation.awaits_done = false;
  operation.guard = {reply.frame.address, reply.frame.tag};
  if (!reply.payload.empty()) operation.request.flags |= kRepeated;
  const bool readable =
      operation.peer->memory && take_segments(operation, reply.payload, operation.length);
  readable ? start_direct_read(operation) : finish_direct_read(operation, false);
}

}  // namespace pacecar::fabric
