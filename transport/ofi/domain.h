// OfiDomain: an opened provider: its fabric and domain, the completion queue, and how to sleep
// until something arrives. Thread rule: one thread at a time; the file descriptor never changes.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include <array>
#include <optional>
#include <span>
#include <string>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"
#include "transport/ofi/errors.h"
#include "transport/ofi/provider.h"

namespace pacecar {

class OfiDomain {
 public:
  static constexpr size_t kBatch = 32;

  // `name`: of the NIC, for errors. `completions`: how many may be outstanding.
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

  // wait_fd() becomes readable at the next arrival, or after a time; false: one is there already.
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

}  // namespace pacecar
