// Registrations: the memory that the device may use, by key. The same range with the same rights is
// registered with the device once, however often it is asked for.
//
// Bounded by the number of registrations. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "transport/base/result.h"
#include "transport/nic/nic.h"
#include "transport/verbs/handles.h"

namespace pacecar {

class Registrations {
 public:
  // `domain` outlives it.
  Registrations(ibv_pd* domain, uint32_t capacity, std::string device);

  // Errors: kInvalidArgument (empty, wrapping or unmapped range), kUnavailable (all are used),
  // kPermission (the memory cannot be locked), kSystem (a device with two keys for one memory).
  Result<MemoryRegion> add(void* address, size_t length, Access access);
  // Memory behind a dma-buf, such as a GPU's: `length` bytes from `offset` on, addressed by peers
  // from `address` on. Errors: as above.
  Result<MemoryRegion> add_dmabuf(int fd, uint64_t offset, size_t length, uint64_t address,
                                  Access access);
  // Whether the device's driver can register dma-bufs.
  bool takes_dmabuf() const;
  // Whether nothing else uses the same registration: its owner must see to it that the device is
  // done with the memory before remove().
  bool last(uint32_t key) const;
  void remove(uint32_t key);

 private:
  struct Registration {
    MemoryHandle memory;
    uint64_t address = 0;
    size_t length = 0;
    Access access = Access::kLocalRead;
    bool shareable = false;  // a dma-buf's address says nothing about its identity
    uint32_t uses = 0;
  };

  Result<void> check(uint64_t address, size_t length) const;
  Result<MemoryRegion> keep(ibv_mr* memory, std::string_view call, Registration registration);
  static MemoryRegion region(const Registration& registration);

  ibv_pd* domain_;
  uint32_t capacity_;
  uint32_t used_ = 0;
  std::string device_;
  std::unordered_map<uint32_t, Registration> by_key_;
  std::unordered_multimap<uint64_t, uint32_t> by_address_;  // keys of the shareable ones
};

}  // namespace pacecar
