#include "net_plugin/libfabric/endpoint/operations.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "net_plugin/libfabric/endpoint/peer.h"

namespace pacecar::fabric {

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

Operations::~Operations() {
  for_each([this](Operation& operation) { release(operation); });
}

Operation& Operations::begin(Peer& peer, Operation::Kind kind, const Local& local,
                             std::unique_ptr<Bounce> bounce) {
  const auto [number, operation] = table_.take();
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

Operation* Operations::find(uint64_t number, const Peer& peer) {
  Operation* const found = table_.find(number);
  return found != nullptr && found->peer == &peer ? found : nullptr;
}

// The registration of the descriptor's region, if that covers the piece; else a new one.
Result<const Memory*> Operations::memory_for(Operation& operation, size_t piece, size_t nic) {
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

bool Operations::outstanding_with(const Peer& peer) {
  bool any = false;
  for_each([&](const Operation& operation) { any |= operation.peer == &peer; });
  return any;
}

bool Operations::reach(const MemoryRegion& region) {
  bool reached = false;
  for_each([&](const Operation& operation) {
    const bool uses = std::ranges::count(operation.local.regions, &region) > 0;
    reached |= uses && operation.segment_count > 0 && !operation.reads_directly;
  });
  return reached;
}

bool Operations::describe_segments(Operation& operation) {
  operation.segment_count = 0;
  uint64_t bytes = operation.length;
  size_t count = 0;
  for (size_t i = 0; i < operation.local.count && bytes > 0; ++i) {
    const Piece& piece = operation.local.pieces[i];
    const uint64_t part = std::min<uint64_t>(piece.size, bytes);
    if (part == 0) continue;
    const auto memory = memory_for(operation, i, domain_.nic());
    const auto window = memory ? window_of(**memory) : tl::unexpected(memory.error());
    if (!window) {
      log_warning(window.error().message);
      return false;
    }
    const bool own = operation.registered[i] != nullptr;
    const auto offset =
        own ? 0 : static_cast<uint64_t>(piece.data - operation.local.regions[i]->base);
    operation.segments[count++] = {window->address + offset, part, window->key};
    bytes -= part;
  }
  operation.segment_count = count;
  return true;
}

void Operations::end_if_done(Operation& operation) {
  const bool puts = operation.offered || operation.kind == Operation::Kind::kServeRead;
  const bool waits = operation.outstanding_puts > 0 || operation.awaits_done;
  if (!waits && (!puts || operation.puts_issued)) end(operation);
}

void Operations::end(Operation& operation, int error, const std::string& why) {
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
  release(operation);
  completions_.report(std::move(pending));
}

void Operations::release(Operation& operation) {
  if (operation.initiated()) --initiated_;
  if (operation.serves()) --operation.peer->serving;
  for (const Memory* memory : operation.registered) {
    if (memory != nullptr) {
      (void)domain_.pacecar().deregister_memory(operation.registered_nic, memory);
    }
  }
  operation.bounce.reset();
  table_.release(operation.number);
}

}  // namespace pacecar::fabric
