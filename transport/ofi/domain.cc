#include "transport/ofi/domain.h"

#include <rdma/fi_errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <cerrno>
#include <utility>

#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

// The longest sleep if the provider does not wake us for a peer's write.
constexpr timespec kLookAgain{.tv_sec = 0, .tv_nsec = 500'000};

}  // namespace

Result<OfiDomain> OfiDomain::open(OfiProvider provider, std::string name, size_t completions) {
  OfiDomain domain(std::move(provider), std::move(name));
  fi_info* const info = domain.provider_.info.get();
  fid_fabric* fabric = nullptr;
  if (const int error = domain.libfabric().fabric(info->fabric_attr, &fabric, nullptr);
      error != 0) {
    return domain.failed("fi_fabric", error);
  }
  domain.fabric_.reset(fabric);
  fid_domain* opened = nullptr;
  if (const int error = fi_domain(fabric, info, &opened, nullptr); error != 0) {
    return domain.failed("fi_domain", error);
  }
  domain.domain_.reset(opened);
  domain.count_ = completions;
  domain.waiting_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  domain.timer_ = FileDescriptor(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!domain.waiting_ || !domain.timer_) return domain.failed("epoll_create1", -errno);
  RETURN_IF_ERROR(domain.open_completions());
  return domain;
}

// Some providers open a queue with a file descriptor, but have no descriptor then.
Result<void> OfiDomain::open_completions() {
  fi_cq_attr attributes{.size = count_, .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD};
  fid_cq* queue = nullptr;
  int fd = -1;
  wakes_ = false;
  if (fi_cq_open(domain_.get(), &attributes, &queue, nullptr) == 0) {
    completions_.reset(queue);
    wakes_ = fi_control(&queue->fid, FI_GETWAIT, &fd) == 0;
    if (wakes_) return wait_for(fd);
    completions_.reset();
  }
  attributes.wait_obj = FI_WAIT_NONE;
  if (const int error = fi_cq_open(domain_.get(), &attributes, &queue, nullptr); error != 0) {
    return failed("fi_cq_open", error);
  }
  completions_.reset(queue);
  return wait_for(timer_.get());
}

Result<void> OfiDomain::wait_for(int fd) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  const bool added = epoll_ctl(waiting_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  return added || errno == EEXIST ? Result<void>() : failed("epoll_ctl", -errno);
}

Result<void> OfiDomain::reopen_completions() {
  completions_.reset();  // which also removes its file descriptor from the epoll
  failed_ = false;
  return open_completions();
}

OfiFailure OfiDomain::failure(int error) const {
  return {.error = -error,
          .provider_error = 0,
          .provider_text = {},
          .text = libfabric().strerror(-error)};
}

std::span<const fi_cq_data_entry> OfiDomain::poll() {
  const ssize_t count = fi_cq_read(completions_.get(), entries_.data(), entries_.size());
  if (count == -FI_EAVAIL) failed_ = true;
  return std::span(entries_).first(count > 0 ? static_cast<size_t>(count) : 0);
}

std::optional<OfiDomain::Failed> OfiDomain::take_failure() {
  fi_cq_err_entry entry{};
  failed_ = failed_ && fi_cq_readerr(completions_.get(), &entry, 0) == 1;
  if (!failed_) return std::nullopt;
  const char* const text =
      fi_cq_strerror(completions_.get(), entry.prov_errno, entry.err_data, nullptr, 0);
  Failed failed{.context = entry.op_context, .failure = failure(-entry.err)};
  failed.failure.provider_error = entry.prov_errno;
  if (text != nullptr) failed.failure.provider_text = text;
  return failed;
}

bool OfiDomain::prepare_to_wait() {
  if (wakes_) {
    fid* waiting = &completions_->fid;
    return fi_trywait(fabric_.get(), &waiting, 1) == 0;
  }
  const itimerspec once{.it_interval = {}, .it_value = kLookAgain};
  timerfd_settime(timer_.get(), 0, &once, nullptr);  // also clears a past expiry
  return true;
}

}  // namespace pacecar
