// OfiDomain: an opened provider: its fabric and domain, the completion queue, and how to sleep
// until something arrives. OfiRegistrations: the memory that is registered with it. OfiEndpoint:
// writes to peers.
// Thread rule: one thread at a time; the file descriptor never changes.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"
#include "transport/nic/nic.h"
#include "transport/ofi/errors.h"
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
  Result<Region> add_own(void* address, size_t length, Access access = Access::kRemoteWrite);

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

// A contiguous part of a write.
struct OfiPart {
  const void* data = nullptr;
  Bytes length = 0;
  void* descriptor = nullptr;  // of the local memory, if the provider needs it registered
  uint64_t place = 0;          // in the peer's memory, as the provider addresses it
  uint64_t key = 0;
};

// One write operation; its memory outlives it.
struct OfiWrite {
  OfiPart part;
  OfiPart behind;         // placed after the first part; length 0: none
  bool from_gpu = false;  // memory that no processor can copy
  fi_addr_t peer = FI_ADDR_UNSPEC;
  bool answered = true;  // completes when the data is in place; else when it is copied to the peer
  void* context = nullptr;
};

// An endpoint of a libfabric NIC, with the addresses of the peers to which it writes. An endpoint
// is costly (tcp;ofi_rxm takes 67 MB), so all queue pairs share few.
class OfiEndpoint {
 public:
  // `domain` outlives it. Errors: what the provider refuses.
  static Result<std::unique_ptr<OfiEndpoint>> open(const OfiDomain& domain);

  fid_ep* endpoint() const { return endpoint_.get(); }
  // Its address, for peers.
  std::span<const uint8_t> name() const { return name_; }

  // A peer is removed when remove_peer() has been called as often as add_peer(). Errors: kPeer for
  // an invalid address.
  Result<fi_addr_t> add_peer(std::span<const uint8_t> name);
  void remove_peer(std::span<const uint8_t> name);

  // A peer's address as text.
  std::string text_of(std::span<const uint8_t> name) const;

  // Posts a write. Returns 0 or a negative error; -FI_EAGAIN: try again later.
  int write(const OfiWrite& write) const;

 private:
  explicit OfiEndpoint(const OfiDomain& domain) : domain_(domain) {}

  struct Peer {
    fi_addr_t address = FI_ADDR_UNSPEC;
    uint32_t users = 0;
  };

  const OfiDomain& domain_;
  FidHandle<fid_av> addresses_;
  FidHandle<fid_ep> endpoint_;
  std::vector<uint8_t> name_;
  std::map<std::vector<uint8_t>, Peer> peers_;
};

}  // namespace pacecar
