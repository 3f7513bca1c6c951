// OfiDomain: an opened provider: its fabric and domain, the completion queue, and how to sleep
// until something arrives.
//
// Thread rule: one thread at a time; the file descriptor never changes.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include <array>
#include <span>
#include <string>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"
#include "transport/ofi/errors.h"
#include "transport/ofi/handles.h"
#include "transport/ofi/provider.h"

namespace pacecar {

class OfiDomain {
 public:
  static constexpr size_t kBatch = 32;

  // `name` is the NIC's, for errors; `completions` how many may be outstanding.
  static Result<OfiDomain> open(OfiProvider provider, std::string name, size_t completions);

  const OfiProvider& provider() const { return provider_; }
  const OfiTraits& traits() const { return provider_.traits; }
  const std::string& name() const { return name_; }
  fid_domain* domain() const { return domain_.get(); }
  fid_cq* completions() const { return completions_.get(); }
  const OfiLibrary& libfabric() const { return *provider_.info.get_deleter().libfabric; }

  // `error` as calls return it, negative.
  OfiFailure failure(int error) const;
  tl::unexpected<Error> failed(std::string_view call, int error) const {
    return tl::unexpected(ofi_error(call, failure(error), name_));
  }

  struct Failed {
    void* context = nullptr;  // of the operation; nullptr: of none that is known
    OfiFailure failure;
  };
  // What has completed, at most kBatch, valid until the next call; moves the provider on.
  std::span<const fi_cq_data_entry> poll();
  // What has failed, after a poll() that said so; false: nothing has.
  bool take_failure(Failed* failed);

  // Another queue in place of this one, on which no endpoint may be open: with the endpoints
  // closed, tcp;ofi_rxm still asks them for what may have arrived.
  Result<void> reopen_completions();

  // From here on wait_fd() becomes readable when something arrives, or soon; false when something
  // has arrived.
  bool prepare_to_wait();
  int wait_fd() const { return waiting_.get(); }
  // Whether anything that arrives wakes; else one wakes to look, from time to time.
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
  FileDescriptor waiting_;  // an epoll, for what is waited for: the queue's, or the timer
  FileDescriptor timer_;    // where the provider has no file descriptor to wait for
  size_t count_ = 0;        // of completions
  bool wakes_ = false;
  bool failed_ = false;  // the queue has an error to tell
  std::array<fi_cq_data_entry, kBatch> entries_;
};

}  // namespace pacecar
