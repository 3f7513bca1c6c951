// Registrations: the memory that the device may access, by key. Equal memory and rights are
// registered once (gdr/registration_cache.h). Bounded by the number of registrations. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gdr/registration_cache.h"
#include "transport/base/result.h"
#include "transport/nic/nic.h"
#include "transport/verbs/device.h"

namespace pacecar {

class Registrations {
 public:
  // `domain` outlives this and the holds of remove().
  Registrations(ibv_pd* domain, uint32_t capacity, std::string device)
      : domain_(domain), device_(std::move(device)), cache_(capacity) {}

  // Errors: kInvalidArgument (empty, wrapping or unmapped range), kUnavailable (all are used),
  // kPermission (the memory cannot be locked), kSystem (local and remote keys differ).
  Result<MemoryRegion> add(void* address, size_t length, Access access);
  Result<MemoryRegion> add_dmabuf(const DmaBufMemory& memory, Access access);  // Errors: as above.
  // Whether it has no other user: the device must then be done with the memory before remove().
  bool last(uint32_t key) const { return cache_.last(key); }
  // For the last user: the memory is deregistered when the returned hold is destroyed.
  [[nodiscard]] RegistrationCache::Hold remove(uint32_t key) { return cache_.release(key); }

 private:
  // `make` registers the memory with the device by `call`; null with errno.
  template <typename Make>
  Result<MemoryRegion> add(const RegistrationCache::Memory& memory, Access access,
                           std::string_view call, Make make);

  ibv_pd* const domain_;
  const std::string device_;
  RegistrationCache cache_;
};

bool takes_dmabuf(ibv_pd* domain);  // Whether the device's driver can register dma-bufs.

}  // namespace pacecar
