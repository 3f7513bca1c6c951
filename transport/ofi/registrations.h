// OfiRegistrations: the registered memory of a libfabric NIC, by the 32-bit key that Pacecar and
// its peers use. The provider's own key may be longer, and the provider may choose it. Bounded by
// the number of registrations. Thread rule: one thread at a time.
#pragma once

#include <rdma/fi_domain.h>

#include <cstdint>
#include <unordered_map>

#include "transport/base/result.h"
#include "transport/nic/nic.h"
#include "transport/ofi/domain.h"

namespace pacecar {

class OfiRegistrations {
 public:
  struct Region {
    FidHandle<fid_mr> memory;
    uint64_t address = 0;  // of its first byte
    uint64_t place = 0;    // of its first byte, as the provider addresses it
    uint64_t provider_key = 0;
    Bytes length = 0;
    Access access = Access::kLocalRead;
    bool in_gpu = false;

    void* descriptor() const { return fi_mr_desc(memory.get()); }
  };

  // `domain` outlives it.
  OfiRegistrations(const OfiDomain& domain, uint32_t capacity)
      : domain_(domain), capacity_(capacity) {}

  // Registers memory with this endpoint from now on, if the provider needs one.
  void use(fid_ep* endpoint) { endpoint_ = endpoint; }

  // Errors: kInvalidArgument (empty or wrapping), kUnavailable (all are used), or as the provider.
  Result<MemoryRegion> add(void* address, size_t length, Access access);
  Result<MemoryRegion> add_dmabuf(const DmaBufMemory& memory, Access access);
  void remove(uint32_t key) { regions_.erase(key); }
  void clear() { regions_.clear(); }
  const Region* find(uint32_t key) const;  // nullptr: there is none.

  // Registers memory of the NIC itself, which does not count towards the capacity.
  Result<Region> add_own(void* address, size_t length, Access access = Access::kRemoteWrite);

 private:
  Result<Region> register_at_provider(fi_mr_attr& attributes, uint64_t address, size_t length,
                                      Access access, uint64_t flags);
  Result<MemoryRegion> insert(Result<Region> region);
  Result<void> check(uint64_t address, size_t length) const;

  const OfiDomain& domain_;
  const uint32_t capacity_;
  fid_ep* endpoint_ = nullptr;
  std::unordered_map<uint32_t, Region> regions_;
};

}  // namespace pacecar
