#include "net_plugin/libfabric/endpoint/local.h"

#include <cstring>

#include "transport/base/return_if_error.h"

namespace pacecar::fabric {
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

bool Local::on_device() const {
  return std::ranges::any_of(std::span(regions).first(count),
                             [](const MemoryRegion* region) { return region && region->device; });
}

std::vector<uint8_t> Local::segments() const {
  std::vector<uint8_t> bytes;
  for (const Piece& piece : all()) {
    const RemoteSegment segment{reinterpret_cast<uint64_t>(piece.data), piece.size, 0};
    const auto* const first = reinterpret_cast<const uint8_t*>(&segment);
    bytes.insert(bytes.end(), first, first + sizeof segment);
  }
  return bytes;
}

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

}  // namespace pacecar::fabric
