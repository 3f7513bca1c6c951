// Local memory of an operation: pieces of host memory or GPU memory (FI_HMEM). Frames and puts use
// host memory, so GPU memory is copied there and back, with the domain's lock held.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "net_plugin/libfabric/core/frame.h"
#include "net_plugin/libfabric/core/pieces.h"
#include "net_plugin/libfabric/objects.h"
#include "transport/base/fresh_pages.h"

namespace pacecar::fabric {

struct Local {
  std::array<Piece, kMaxSegments> pieces{};
  std::array<MemoryRegion*, kMaxSegments>
      regions{};  // the descriptors; null: registered for the operation
  size_t count = 0;

  static Local one(uint8_t* data, size_t size, MemoryRegion* region) {
    Local local;
    local.pieces[0] = {data, size};
    local.regions[0] = region;
    local.count = 1;
    return local;
  }
  std::span<const Piece> all() const { return {pieces.data(), count}; }
  size_t bytes() const { return total(all()); }
  // The segments of a kDirect frame: its pieces, by their addresses in this process.
  std::vector<uint8_t> segments() const;
  // The region is being closed. False: it was not used.
  bool forget(MemoryRegion& region) {
    const bool used = std::ranges::count(regions, &region) > 0;
    std::ranges::replace(regions, &region, nullptr);
    return used;
  }
  bool on_device() const;  // Whether some of it is GPU memory.
  // Between it and host memory. Errors: as StagedRange::copy; none for host memory.
  Result<void> copy_out(std::span<uint8_t> to) const;
  Result<void> copy_in(std::span<const uint8_t> from) const;
};

// A bounce buffer: host memory in place of GPU memory.
struct Bounce {
  explicit Bounce(uint64_t size) : host(std::max<uint64_t>(size, 1)), bytes(size) {}
  // Each returns null if `local` has no GPU memory. with() is filled with its bytes; into() is
  // copied to it later. Errors: as Local::copy_out.
  static Result<std::unique_ptr<Bounce>> with(const Local& local);
  static std::unique_ptr<Bounce> into(const Local& local, uint64_t bytes);
  Local memory() const { return Local::one(host.data(), bytes, nullptr); }

  OwnPages<uint8_t> host;
  uint64_t bytes;
  Local device;  // the destination of received bytes; empty: of a send, or already copied
};

}  // namespace pacecar::fabric
