// NicMemory: the memory that a NIC and its peers may access. Thread rule: one thread at a time,
// except where NicCaps::registers_beside allows more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "transport/base/result.h"

namespace pacecar {

// Rights to registered memory. The owner may always read it. The owner may also write it (by
// receives and reads) if it has any other right than kLocalRead.
enum class Access : uint8_t {
  kLocalRead = 0,
  kRemoteWrite = 1,
  kRemoteRead = 2,
  kRemoteAll = 3,  // except atomics
  kRemoteAtomic = 4,
  kLocalWrite = 8,  // for memory to which peers have no right
};

constexpr Access operator|(Access a, Access b) {
  return static_cast<Access>(static_cast<uint8_t>(a) | static_cast<uint8_t>(b));
}

constexpr bool allows(Access granted, Access wanted) {
  return (static_cast<uint8_t>(granted) & static_cast<uint8_t>(wanted)) ==
         static_cast<uint8_t>(wanted);
}

// Registered memory. Key and remote address must be given only to peers that may access it.
struct MemoryRegion {
  uint8_t* address = nullptr;
  size_t length = 0;
  uint32_t key = 0;  // local and remote key in one
  // The remote address of the first byte. If the NIC can choose it, it is not the local one. Its
  // low bits are the low bits of `address` (kRemoteAlignment).
  uint64_t remote_address = 0;

  // The remote address of a byte of the region.
  uint64_t remote(const uint8_t* byte) const {
    return remote_address + static_cast<uint64_t>(byte - address);
  }
};

// Remote addresses equal local ones modulo this: peers see the same alignment up to a huge page.
inline constexpr uint64_t kRemoteAlignment = uint64_t{1} << 21;

// `length` bytes of a dma-buf (GPU memory) from `offset` on. Peers address it from `address` on.
struct DmaBufMemory {
  static constexpr uint64_t kUnknown = 0;
  int fd = -1;
  uint64_t offset = 0;
  uint64_t address = 0;
  size_t length = 0;
  // The owner's number of the allocation that contains the memory; never reused.
  uint64_t allocation = kUnknown;
};

class NicMemory {
 public:
  // Errors: kInvalidArgument (empty or wrapping range), kUnavailable (all regions are used).
  virtual Result<MemoryRegion> register_memory(void* address, size_t length, Access access) = 0;
  // Needs NicCaps::dma_buf. Errors: as register_memory, and the errors of the device.
  virtual Result<MemoryRegion> register_dmabuf(const DmaBufMemory& /*memory*/, Access /*access*/) {
    return fail(ErrorCode::kInvalidArgument, "the NIC takes no dma-buf: use host memory");
  }
  // Afterwards nothing reads or writes the region. A slow step that does not need the NIC is left
  // to the returned object's destructor, run on any thread, but before the NIC is destroyed.
  virtual std::shared_ptr<void> deregister_memory(const MemoryRegion& region) = 0;
  // Whether another registration has the same key: the memory then stays registered after this one.
  virtual bool shared(const MemoryRegion& /*region*/) const { return false; }

  // Flush: makes the bytes that peers have written into GPU memory so far visible to the GPU, by a
  // read of one byte behind those writes. Returns the argument of flushed(); nullopt: the NIC has
  // no reads. Errors: kUnavailable (too many at once), kSystem.
  virtual Result<std::optional<uint64_t>> start_flush(const MemoryRegion& /*region*/,
                                                      const uint8_t* /*data*/) {
    return std::nullopt;
  }
  // Whether that flush is complete. Errors: kSystem.
  virtual Result<bool> flushed(uint64_t /*flush*/) { return true; }

 protected:
  ~NicMemory() = default;
};

}  // namespace pacecar
