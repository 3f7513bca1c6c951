// OfiDomain: an opened provider: its fabric and domain, the completion queue, and how to sleep
// until something arrives. OfiRegistrations: the memory that is registered with it.
//
// Thread rule: one thread at a time; the file descriptor never changes.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"
#include "transport/nic/nic.h"
#include "transport/ofi/errors.h"
#include "transport/ofi/library.h"
#include "transport/ofi/provider.h"

namespace pacecar {

class OfiDomain {
 public:
  static constexpr size_t kBatch = 32;

  // `name`: the NIC's, for errors. `completions`: how many may be outstanding.
  static Result<OfiDomain> open(OfiProvider provider, std::string name, size_t completions);

  const OfiProvider& provider() const { return provider_; }
  const OfiTraits& traits() const { return provider_.traits; }
  const std::string& name() const { return name_; }
  fid_domain* domain() const { return domain_.get(); }
  fid_cq* completions() const { return completions_.get(); }
  const OfiLibrary& libfabric() const { return *provider_.info.get_deleter().libfabric; }

  // `error`: negative, as calls return it.
  OfiFailure failure(int error) const;
  tl::unexpected<Error> failed(std::string_view call, int error) const {
    return tl::unexpected(ofi_error(call, failure(error), name_));
  }

  struct Failed {
    void* context = nullptr;  // of the operation; nullptr: unknown
    OfiFailure failure;
  };
  // Completions, at most kBatch, valid until the next call. Drives the provider's progress.
  std::span<const fi_cq_data_entry> poll();
  // The next failed operation, after a poll() that found an error; nullopt: there is none.
  std::optional<Failed> take_failure();

  // Replaces the completion queue; all endpoints must be closed. The old queue cannot be kept:
  // tcp;ofi_rxm still polls closed endpoints through it.
  Result<void> reopen_completions();

  // From here on wait_fd() becomes readable when something arrives, or after a short time; false:
  // something has already arrived.
  bool prepare_to_wait();
  int wait_fd() const { return waiting_.get(); }
  // Whether every arrival makes wait_fd() readable; otherwise a timer does so periodically.
  bool wakes() const { return wakes_; }

 private:
  OfiDomain(OfiProvider provider, std::string name)
      : provider_(std::move(provider)), name_(std::move(name)) {}
  Result<void> open_completions();
  Result<void> wait_for(int fd);

  // Each is made from those before it.
  OfiProvider provider_;
  std::string name_;
  FidHandle<fid_fabric> fabric_;
  FidHandle<fid_domain> domain_;
  FidHandle<fid_cq> completions_;
  FileDescriptor waiting_;  // an epoll over the queue's descriptor, or over the timer
  FileDescriptor timer_;    // if the provider has no file descriptor to wait for
  size_t count_ = 0;        // of completions
  bool wakes_ = false;
  bool failed_ = false;  // the queue has error entries
  std::array<fi_cq_data_entry, kBatch> entries_;
};

// The registered memory of a libfabric NIC, by the 32-bit key that Pacecar and its peers use. The
// provider's own key may be longer, and the provider may choose it. Bounded by the number of
// registrations.
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

  // Errors: kInvalidArgument (empty or wrapping range), kUnavailable (all are used), and what the
  // provider refuses.
  Result<MemoryRegion> add(void* address, size_t length, Access access);
  Result<MemoryRegion> add_dmabuf(const DmaBufMemory& memory, Access access);
  void remove(uint32_t key) { regions_.erase(key); }
  void clear() { regions_.clear(); }
  // nullptr: there is none.
  const Region* find(uint32_t key) const;

  // Registers memory of the NIC itself, which does not count towards the capacity.
  Result<Region> add_own(void* address, size_t length);

 private:
  Result<Region> register_at_provider(fi_mr_attr& attributes, uint64_t address, size_t length,
                                      Access access, uint64_t flags);
  Result<MemoryRegion> keep(Result<Region> region);
  Result<void> check(uint64_t address, size_t length) const;

  const OfiDomain& domain_;
  const uint32_t capacity_;
  fid_ep* endpoint_ = nullptr;
  std::unordered_map<uint32_t, Region> regions_;
};

}  // namespace pacecar
