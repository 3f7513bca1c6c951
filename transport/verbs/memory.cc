#include "transport/verbs/memory.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "transport/verbs/errors.h"

namespace pacecar {
namespace {

// No relaxed ordering: a later write could become visible before an earlier one, and readers that
// poll memory (control words) rely on the order. It would be safe for buffers that are completed by
// an immediate, but the NIC cannot distinguish these.
int access_flags(Access access) {
  int flags = 0;
  if (access != Access::kLocalRead) flags |= IBV_ACCESS_LOCAL_WRITE;
  if (allows(access, Access::kRemoteWrite)) flags |= IBV_ACCESS_REMOTE_WRITE;
  if (allows(access, Access::kRemoteRead)) flags |= IBV_ACCESS_REMOTE_READ;
  return flags;
}

}  // namespace

Registrations::Registrations(ibv_pd* domain, uint32_t capacity, std::string device)
    : domain_(domain), device_(std::move(device)), cache_(capacity) {}

Result<MemoryRegion> Registrations::add(void* address, size_t length, Access access) {
  const auto begin = reinterpret_cast<uint64_t>(address);
  const auto key = cache_.acquire(
      {.range = {begin, begin + length}, .rights = static_cast<uint32_t>(access)}, [&] {
        return hold(ibv_reg_mr(domain_, address, length, access_flags(access)), "ibv_reg_mr",
                    access);
      });
  if (!key) return tl::unexpected(key.error());
  return MemoryRegion{static_cast<uint8_t*>(address), length, *key, begin};
}

Result<MemoryRegion> Registrations::add_dmabuf(const DmaBufMemory& memory, Access access) {
  const bool known = memory.allocation != DmaBufMemory::kUnknown;
  const auto key = cache_.acquire(
      {.range = {memory.address, memory.address + memory.length},
       .rights = static_cast<uint32_t>(access),
       .allocation = known ? memory.allocation : RegistrationCache::kUnknown},
      [&] {
        return hold(ibv_reg_dmabuf_mr(domain_, memory.offset, memory.length, memory.address,
                                      memory.fd, access_flags(access)),
                    "ibv_reg_dmabuf_mr", access);
      });
  if (!key) return tl::unexpected(key.error());
  return MemoryRegion{reinterpret_cast<uint8_t*>(memory.address), memory.length, *key,
                      memory.address};
}

// Tries it with an invalid file descriptor: a driver that supports dma-bufs refuses that
// descriptor.
bool takes_dmabuf(ibv_pd* domain) {
  constexpr int kNoFile = -1;
  errno = 0;
  const MemoryHandle never(ibv_reg_dmabuf_mr(domain, 0, 0, 0, kNoFile, 0));
  return errno != EOPNOTSUPP && errno != EPROTONOSUPPORT && errno != ENOSYS;
}

// `memory`: the result of `call`.
Result<RegistrationCache::Registration> Registrations::hold(ibv_mr* memory, std::string_view call,
                                                            Access access) const {
  if (memory == nullptr) return verbs_failed(call, errno, device_, Call::kRegister);
  MemoryHandle handle(memory);
  // The layers above use one key for both.
  if (access != Access::kLocalRead && memory->lkey != memory->rkey) {
    return fail(ErrorCode::kSystem,
                fmt::format("{} gives memory two different keys, which Pacecar cannot use: use "
                            "the software NIC on it (soft:udp)",
                            device_));
  }
  return RegistrationCache::Registration{memory->lkey, std::move(handle)};
}

}  // namespace pacecar
