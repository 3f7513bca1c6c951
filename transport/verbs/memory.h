// Registrations: the memory that the device may use, by key. The same range with the same rights is
// registered once (gdr/registration_cache.h).
//
// Bounded by the number of registrations. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "gdr/registration_cache.h"
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
  // What the device has, by key.
  class Device final : public Registrar {
   public:
    Device(ibv_pd* domain, std::string name) : domain_(domain), name_(std::move(name)) {}

    Result<uint32_t> add(const AddressRange& range, uint32_t rights) override;
    Result<uint32_t> add_dmabuf(int fd, uint64_t offset, const AddressRange& range, Access access);
    void remove(uint32_t key) override { memory_.erase(key); }

    ibv_pd* domain() const { return domain_; }
    bool has(uint32_t key) const { return memory_.contains(key); }
    // Of memory of the host.
    std::optional<RegistrationCache::Lease> lease_of(uint32_t key) const;

   private:
    struct Entry {
      MemoryHandle memory;
      std::optional<RegistrationCache::Lease> lease;  // none of a dma-buf
    };
    Result<uint32_t> keep(ibv_mr* memory, std::string_view call, Access access, Entry entry);

    ibv_pd* domain_;
    std::string name_;
    std::unordered_map<uint32_t, Entry> memory_;
  };

  bool full() const;
  static tl::unexpected<Error> all_used();

  Device device_;
  RegistrationCache cache_;
  const uint32_t capacity_;
  uint32_t dmabufs_ = 0;  // a dma-buf's address says nothing about its identity: not in the cache
};

}  // namespace pacecar
