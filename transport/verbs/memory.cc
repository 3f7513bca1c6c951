#include "transport/verbs/memory.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "transport/verbs/errors.h"

namespace pacecar {
namespace {

// No relaxed ordering: it would let a later write become visible before an earlier one, and who
// polls memory that peers write (control words) relies on their order. The NIC cannot tell such
// memory from buffers whose completion is told by an immediate, for which it would be safe.
int access_flags(Access access) {
  int flags = 0;
  if (access != Access::kLocalRead) flags |= IBV_ACCESS_LOCAL_WRITE;
  if (allows(access, Access::kRemoteWrite)) flags |= IBV_ACCESS_REMOTE_WRITE;
  if (allows(access, Access::kRemoteRead)) flags |= IBV_ACCESS_REMOTE_READ;
  return flags;
}

}  // namespace

Registrations::Registrations(ibv_pd* domain, uint32_t capacity, std::string device)
    : device_(domain, std::move(device)), cache_(device_, capacity), capacity_(capacity) {}

Result<MemoryRegion> Registrations::add(void* address, size_t length, Access access) {
  if (full()) return all_used();
  const auto lease =
      cache_.acquire(reinterpret_cast<uint64_t>(address), length, static_cast<uint32_t>(access));
  if (!lease) return tl::unexpected(lease.error());
  return MemoryRegion{static_cast<uint8_t*>(address), length, lease->key};
}

Result<MemoryRegion> Registrations::add_dmabuf(int fd, uint64_t offset, size_t length,
                                               uint64_t address, Access access) {
  if (address == 0 || length == 0 || address + length < address) {
    return fail(ErrorCode::kInvalidArgument,
                "cannot register an empty or wrapping range of a dma-buf: pass a valid address and "
                "length");
  }
  if (full()) return all_used();
  const auto key = device_.add_dmabuf(fd, offset, {address, address + length}, access);
  if (!key) return tl::unexpected(key.error());
  ++dmabufs_;
  return MemoryRegion{reinterpret_cast<uint8_t*>(address), length, *key};
}

bool Registrations::full() const { return cache_.leases() + dmabufs_ == capacity_; }

tl::unexpected<Error> Registrations::all_used() {
  return fail(
      ErrorCode::kUnavailable,
      "all memory regions of the NIC are used: deregister some or raise PACECAR_MAX_REGIONS");
}

// Asked with a file that is none: who can would look at the file first, and refuse that.
bool Registrations::takes_dmabuf() const {
  constexpr int kNoFile = -1;
  errno = 0;
  const MemoryHandle never(ibv_reg_dmabuf_mr(device_.domain(), 0, 0, 0, kNoFile, 0));
  return errno != EOPNOTSUPP && errno != EPROTONOSUPPORT && errno != ENOSYS;
}

bool Registrations::last(uint32_t key) const {
  const auto lease = device_.lease_of(key);
  return !lease || cache_.last(*lease);
}

void Registrations::remove(uint32_t key) {
  if (!device_.has(key)) return;
  if (const auto lease = device_.lease_of(key)) return cache_.release(*lease);
  device_.remove(key);
  --dmabufs_;
}

Result<uint32_t> Registrations::Device::add(const AddressRange& range, uint32_t rights) {
  const auto access = static_cast<Access>(rights);
  ibv_mr* const memory = ibv_reg_mr(domain_, reinterpret_cast<void*>(range.begin),
                                    range.end - range.begin, access_flags(access));
  return keep(memory, "ibv_reg_mr", access, {.lease = RegistrationCache::Lease{range, rights}});
}

Result<uint32_t> Registrations::Device::add_dmabuf(int fd, uint64_t offset,
                                                   const AddressRange& range, Access access) {
  ibv_mr* const memory = ibv_reg_dmabuf_mr(domain_, offset, range.end - range.begin, range.begin,
                                           fd, access_flags(access));
  return keep(memory, "ibv_reg_dmabuf_mr", access, {});
}

// `memory` is what `call` has returned.
Result<uint32_t> Registrations::Device::keep(ibv_mr* memory, std::string_view call, Access access,
                                             Entry entry) {
  if (memory == nullptr) return tl::unexpected(verbs_error(Call::kRegister, call, errno, name_));
  entry.memory.reset(memory);
  // One key serves both ends above us.
  if (access != Access::kLocalRead && memory->lkey != memory->rkey) {
    return fail(ErrorCode::kSystem,
                fmt::format("{} gives memory two different keys, which Pacecar cannot use: use "
                            "the software NIC on it (soft:udp)",
                            name_));
  }
  const uint32_t key = memory->lkey;
  if (entry.lease) entry.lease->key = key;
  memory_.emplace(key, std::move(entry));
  return key;
}

std::optional<RegistrationCache::Lease> Registrations::Device::lease_of(uint32_t key) const {
  const auto found = memory_.find(key);
  return found == memory_.end() ? std::nullopt : found->second.lease;
}

}  // namespace pacecar
