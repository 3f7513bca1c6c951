#include "transport/ofi/domain.h"

#include <fmt/format.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "transport/base/random_word.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

// The longest sleep if the provider does not wake us for a peer's write.
constexpr timespec kLookAgain{.tv_sec = 0, .tv_nsec = 500'000};

// shm names its memory by the process id. If a killed process with the same id has left memory,
// opening fails. A random part makes the names unique.
void make_names_unique(fi_info& info) {
  const std::string name =
      fmt::format("{}-{:08x}", static_cast<const char*>(info.src_addr), random_word());
  std::free(std::exchange(info.src_addr, strdup(name.c_str())));
  info.src_addrlen = name.size() + 1;
}

uint64_t rights_of(Access access) {
  uint64_t rights = FI_WRITE;  // the source of our writes
  if (allows(access, Access::kRemoteWrite)) rights |= FI_REMOTE_WRITE;
  if (allows(access, Access::kRemoteRead)) rights |= FI_REMOTE_READ;
  return rights;
}

// Tries to choose a key that is not in use.
constexpr int kKeyTries = 8;

}  // namespace

Result<OfiDomain> OfiDomain::open(OfiProvider provider, std::string name, size_t completions) {
  OfiDomain domain(std::move(provider), std::move(name));
  fi_info* const info = domain.provider_.info.get();
  if (domain.traits().host_only && info->src_addr != nullptr) make_names_unique(*info);
  fid_fabric* fabric = nullptr;
  if (const int error = domain.libfabric().fabric(info->fabric_attr, &fabric); error != 0) {
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
          .text = libfabric().text_of(-error)};
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

// --- registered memory ---

Result<void> OfiRegistrations::check(uint64_t address, size_t length) const {
  if (address == 0 || length == 0 || address + length < address) {
    return fail(
        ErrorCode::kInvalidArgument,
        "cannot register an empty or wrapping memory range: pass a valid address and length");
  }
  if (regions_.size() == capacity_) {
    return fail(
        ErrorCode::kUnavailable,
        "all memory regions of the NIC are used: deregister some or raise PACECAR_MAX_REGIONS");
  }
  return {};
}

Result<MemoryRegion> OfiRegistrations::add(void* address, size_t length, Access access) {
  RETURN_IF_ERROR(check(reinterpret_cast<uint64_t>(address), length));
  return keep(add_own(address, length, access));
}

#ifdef FI_MR_DMABUF
Result<MemoryRegion> OfiRegistrations::add_dmabuf(const DmaBufMemory& memory, Access access) {
  RETURN_IF_ERROR(check(memory.address, memory.length));
  const fi_mr_dmabuf buffer{.fd = memory.fd,
                            .offset = memory.offset,
                            .len = memory.length,
                            .base_addr = reinterpret_cast<void*>(memory.address - memory.offset)};
  fi_mr_attr attributes{.dmabuf = &buffer, .iov_count = 1};
  attributes.iface = FI_HMEM_CUDA;
  auto region =
      register_at_provider(attributes, memory.address, memory.length, access, FI_MR_DMABUF);
  if (region) region->in_gpu = true;
  return keep(std::move(region));
}
#else
Result<MemoryRegion> OfiRegistrations::add_dmabuf(const DmaBufMemory& /*memory*/,
                                                  Access /*access*/) {
  return fail(ErrorCode::kInvalidArgument,
              "this build knows no dma-bufs of libfabric: build it with version 1.20 or later");
}
#endif

Result<OfiRegistrations::Region> OfiRegistrations::add_own(void* address, size_t length,
                                                           Access access) {
  const iovec range{.iov_base = address, .iov_len = length};
  fi_mr_attr attributes{.mr_iov = &range, .iov_count = 1};
  return register_at_provider(attributes, reinterpret_cast<uint64_t>(address), length, access, 0);
}

Result<OfiRegistrations::Region> OfiRegistrations::register_at_provider(
    fi_mr_attr& attributes, uint64_t address, size_t length, Access access, uint64_t flags) {
  const OfiTraits& traits = domain_.traits();
  attributes.access = rights_of(access);
  fid_mr* memory = nullptr;
  int error = -FI_ENOKEY;
  for (int i = 0; i < kKeyTries && error == -FI_ENOKEY; ++i) {
    attributes.requested_key = random_u64() & traits.key_mask;
    error = fi_mr_regattr(domain_.domain(), &attributes, flags, &memory);
  }
  if (error != 0) return domain_.failed("fi_mr_regattr", error);
  Region region{.memory = FidHandle<fid_mr>(memory),
                .address = address,
                .place = traits.virtual_addresses ? address : 0,
                .provider_key = 0,
                .length = length,
                .access = access};
  if (traits.endpoint_memory) {
    error = fi_mr_bind(memory, &endpoint_->fid, 0);
    if (error == 0) error = fi_mr_enable(memory);
    if (error != 0) return domain_.failed("fi_mr_enable", error);
  }
  region.provider_key = fi_mr_key(memory);
  return region;
}

Result<MemoryRegion> OfiRegistrations::keep(Result<Region> region) {
  if (!region) return tl::unexpected(region.error());
  uint32_t key = 0;
  while (key == 0 || regions_.contains(key)) key = random_word();
  const MemoryRegion advertised{reinterpret_cast<uint8_t*>(region->address), region->length, key,
                                region->address};
  regions_.emplace(key, std::move(*region));
  return advertised;
}

const OfiRegistrations::Region* OfiRegistrations::find(uint32_t key) const {
  const auto found = regions_.find(key);
  return found == regions_.end() ? nullptr : &found->second;
}

// --- endpoints ---

Result<std::unique_ptr<OfiEndpoint>> OfiEndpoint::open(const OfiDomain& domain) {
  std::unique_ptr<OfiEndpoint> made(new OfiEndpoint(domain));
  fi_av_attr attributes{.type = FI_AV_TABLE};
  fid_av* addresses = nullptr;
  if (const int error = fi_av_open(domain.domain(), &attributes, &addresses, nullptr); error != 0) {
    return domain.failed("fi_av_open", error);
  }
  made->addresses_.reset(addresses);
  fid_ep* endpoint = nullptr;
  fi_info* const info = domain.provider().info.get();
  if (const int error = domain.libfabric().endpoint(domain.domain(), info, &endpoint); error != 0) {
    return domain.failed("fi_endpoint", error);
  }
  made->endpoint_.reset(endpoint);
  int error = fi_ep_bind(endpoint, &addresses->fid, 0);
  if (error == 0) {
    error = fi_ep_bind(endpoint, &domain.completions()->fid, FI_TRANSMIT | FI_RECV);
  }
  if (error == 0) error = fi_enable(endpoint);
  if (error != 0) return domain.failed("fi_enable", error);
  size_t size = 0;
  fi_getname(&endpoint->fid, nullptr, &size);
  made->name_.resize(size);
  if (error = fi_getname(&endpoint->fid, made->name_.data(), &size); error != 0) {
    return domain.failed("fi_getname", error);
  }
  return made;
}

Result<fi_addr_t> OfiEndpoint::add_peer(std::span<const uint8_t> name) {
  std::vector<uint8_t> key(name.begin(), name.end());
  Peer& peer = peers_[key];
  if (peer.users == 0) {
    const bool fits =
        name.size() == name_.size() || domain_.provider().info->addr_format == FI_ADDR_STR;
    key.push_back(0);  // addresses of some providers are text
    const int added =
        fits ? fi_av_insert(addresses_.get(), key.data(), 1, &peer.address, 0, nullptr) : 0;
    if (added != 1 || peer.address == FI_ADDR_NOTAVAIL) {
      peers_.erase({name.begin(), name.end()});
      return fail(ErrorCode::kPeer,
                  domain_.name() +
                      " cannot use the peer's address: choose NICs of the same network "
                      "on both sides with PACECAR_NICS");
    }
  }
  ++peer.users;
  return peer.address;
}

void OfiEndpoint::remove_peer(std::span<const uint8_t> name) {
  const auto found = peers_.find({name.begin(), name.end()});
  if (found == peers_.end() || --found->second.users > 0) return;
  fi_av_remove(addresses_.get(), &found->second.address, 1, 0);
  peers_.erase(found);
}

std::string OfiEndpoint::text_of(std::span<const uint8_t> name) const {
  std::vector<uint8_t> address(name.begin(), name.end());
  address.push_back(0);
  std::array<char, 256> text{};
  size_t size = text.size();
  fi_av_straddr(addresses_.get(), address.data(), text.data(), &size);
  const std::string_view all(text.data());
  const size_t scheme = all.find("://");
  return std::string(scheme == std::string_view::npos ? all : all.substr(scheme + 3));
}

int OfiEndpoint::write(const OfiWrite& write) const {
  std::array<iovec, 2> local;
  std::array<fi_rma_iov, 2> remote;
  std::array<void*, 2> descriptors;
  size_t count = 0;
  for (const OfiPart* part : {&write.part, &write.behind}) {
    if (part->length == 0) continue;
    local[count] = {.iov_base = const_cast<void*>(part->data), .iov_len = part->length};
    remote[count] = {.addr = part->place, .len = part->length, .key = part->key};
    descriptors[count++] = part->descriptor;
  }
  const fi_msg_rma message{.msg_iov = local.data(),
                           .desc = descriptors.data(),
                           .iov_count = count,
                           .addr = write.peer,
                           .rma_iov = remote.data(),
                           .rma_iov_count = count,
                           .context = write.context,
                           .data = 0};
  const Bytes length = write.part.length + write.behind.length;
  uint64_t flags = FI_COMPLETION;
  if (write.answered) flags |= FI_DELIVERY_COMPLETE;
  if (length <= domain_.traits().inject && !write.from_gpu) flags |= FI_INJECT;
  return static_cast<int>(fi_writemsg(endpoint_.get(), &message, flags));
}

}  // namespace pacecar
