#include "transport/verbs/memory.h"

#include <fmt/format.h>

#include <algorithm>
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
    : domain_(domain), capacity_(capacity), device_(std::move(device)) {}

Result<MemoryRegion> Registrations::add(void* address, size_t length, Access access) {
  const auto start = reinterpret_cast<uint64_t>(address);
  if (auto checked = check(start, length); !checked) return tl::unexpected(checked.error());
  const auto [begin, end] = by_address_.equal_range(start);
  const auto same = std::find_if(begin, end, [&](const auto& entry) {
    const Registration& other = by_key_.at(entry.second);
    return other.length == length && other.access == access;
  });
  if (same != end) {
    Registration& shared = by_key_.at(same->second);
    ++shared.uses;
    ++used_;
    return region(shared);
  }
  return keep(ibv_reg_mr(domain_, address, length, access_flags(access)), "ibv_reg_mr",
              {.address = start, .length = length, .access = access, .shareable = true});
}

Result<MemoryRegion> Registrations::add_dmabuf(int fd, uint64_t offset, size_t length,
                                               uint64_t address, Access access) {
  if (auto checked = check(address, length); !checked) return tl::unexpected(checked.error());
  return keep(ibv_reg_dmabuf_mr(domain_, offset, length, address, fd, access_flags(access)),
              "ibv_reg_dmabuf_mr", {.address = address, .length = length, .access = access});
}

// Asked with a file that is none: who can would look at the file first, and refuse that.
bool Registrations::takes_dmabuf() const {
  constexpr int kNoFile = -1;
  errno = 0;
  const MemoryHandle never(ibv_reg_dmabuf_mr(domain_, 0, 0, 0, kNoFile, 0));
  return errno != EOPNOTSUPP && errno != EPROTONOSUPPORT && errno != ENOSYS;
}

Result<void> Registrations::check(uint64_t address, size_t length) const {
  if (address == 0 || length == 0 || address + length < address) {
    return fail(
        ErrorCode::kInvalidArgument,
        "cannot register an empty or wrapping memory range: pass a valid address and length");
  }
  if (used_ == capacity_) {
    return fail(
        ErrorCode::kUnavailable,
        "all memory regions of the NIC are used: deregister some or raise PACECAR_MAX_REGIONS");
  }
  return {};
}

// `memory` is what `call` has returned.
Result<MemoryRegion> Registrations::keep(ibv_mr* memory, std::string_view call,
                                         Registration registration) {
  if (memory == nullptr) {
    return tl::unexpected(verbs_error(Call::kRegister, call, errno, device_));
  }
  registration.memory.reset(memory);
  // One key serves both ends above us.
  if (registration.access != Access::kLocalRead && memory->lkey != memory->rkey) {
    return fail(ErrorCode::kSystem,
                fmt::format("{} gives memory two different keys, which Pacecar cannot use: use "
                            "the software NIC on it (soft:udp)",
                            device_));
  }
  registration.uses = 1;
  ++used_;
  const uint32_t key = memory->lkey;
  if (registration.shareable) by_address_.emplace(registration.address, key);
  return region(by_key_.emplace(key, std::move(registration)).first->second);
}

MemoryRegion Registrations::region(const Registration& registration) {
  return {reinterpret_cast<uint8_t*>(registration.address), registration.length,
          registration.memory->lkey};
}

bool Registrations::last(uint32_t key) const {
  const auto found = by_key_.find(key);
  return found != by_key_.end() && found->second.uses == 1;
}

void Registrations::remove(uint32_t key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return;
  --used_;
  if (--found->second.uses > 0) return;
  const auto [begin, end] = by_address_.equal_range(found->second.address);
  const auto listed =
      std::find_if(begin, end, [key](const auto& entry) { return entry.second == key; });
  if (listed != end) by_address_.erase(listed);
  by_key_.erase(found);
}

}  // namespace pacecar
