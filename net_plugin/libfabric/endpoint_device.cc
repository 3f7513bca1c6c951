// GPU memory (FI_HMEM): frames and puts use host memory, so GPU memory is copied there and back,
// with the domain's lock held. An operation's descriptors show which of its pieces are GPU memory.
#include <algorithm>
#include <cstring>
#include <utility>

#include "net_plugin/libfabric/endpoint.h"
#include "transport/base/return_if_error.h"

namespace pacecar::fabric {

bool Endpoint::on_device(const Local& local) {
  return std::ranges::any_of(std::span(local.regions).first(local.count),
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
      auto copied = local.regions[i]->device->copy_and_wait(way, piece.data, host, part);
      if (!copied) return copied;
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

Result<void> Endpoint::copy_out(const Local& local, std::span<uint8_t> to) {
  return copy(CopyWay::kToHost, local, to.data(), to.size());
}

Result<void> Endpoint::copy_in(const Local& local, std::span<const uint8_t> bytes) {
  return copy(CopyWay::kToDevice, local, const_cast<uint8_t*>(bytes.data()), bytes.size());
}

Result<std::unique_ptr<Bounce>> Endpoint::bounce_for(const Local& local, uint64_t bytes,
                                                     bool sends) {
  std::unique_ptr<Bounce> bounce;
  if (!on_device(local)) return bounce;
  bounce = std::make_unique<Bounce>(bytes);
  if (!sends) {
    bounce->device = local;
    return bounce;
  }
  RETURN_IF_ERROR(copy_out(local, {bounce->host.data(), bytes}));
  return bounce;
}

// Replaces the operation's memory by the bounce buffer.
void Endpoint::use_bounce(Operation& operation, std::unique_ptr<Bounce> bounce) {
  if (bounce == nullptr) return;
  operation.local = bounce->memory();
  operation.bounce = std::move(bounce);
}

// Copies received bytes from the bounce buffer to GPU memory; a second call copies nothing.
Result<void> Endpoint::deliver(Operation& operation) {
  if (operation.bounce == nullptr) return {};
  const Local device = std::exchange(operation.bounce->device, Local());
  return copy_in(device, {operation.bounce->host.data(), operation.bounce->bytes});
}

}  // namespace pacecar::fabric
