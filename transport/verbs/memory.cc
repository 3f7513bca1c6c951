#include "transport/verbs/memory.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "transport/base/return_if_error.h"
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

template <typename Make>
Result<MemoryRegion> Registrations::add(const RegistrationCache::Memory& memory, Access access,
                                        std::string_view call, Make make) {
  const auto [begin, end] = memory.range;
  ASSIGN_OR_RETURN(
      const auto key, cache_.acquire(memory, [&]() -> Result<RegistrationCache::Registration> {
        MemoryHandle handle(make());
        if (handle == nullptr) return verbs_failed(call, errno, device_, Call::kRegister);
        const uint32_t local = handle->lkey;
        // The layers above use one key for both.
        if (access != Access::kLocalRead && local != handle->rkey) {
          return fail(ErrorCode::kSystem,
                      fmt::format("{} gives memory two different keys, which Pacecar cannot use: "
                                  "use the software NIC on it (soft:udp)",
                                  device_));
        }
        return RegistrationCache::Registration{local, std::move(handle)};
      }));
  return MemoryRegion{reinterpret_cast<uint8_t*>(begin), end - begin, key, begin};
}

Result<MemoryRegion> Registrations::add(void* address, size_t length, Access access) {
  const auto begin = reinterpret_cast<uint64_t>(address);
  return add({.range = {begin, begin + length}, .rights = static_cast<uint32_t>(access)}, access,
             "ibv_reg_mr",
             [&] { return ibv_reg_mr(domain_, address, length, access_flags(access)); });
}

Result<MemoryRegion> Registrations::add_dmabuf(const DmaBufMemory& memory, Access access) {
  const bool known = memory.allocation != DmaBufMemory::kUnknown;
  return add({.range = {memory.address, memory.address + memory.length},
              .rights = static_cast<uint32_t>(access),
              .allocation = known ? memory.allocation : RegistrationCache::kUnknown},
             access, "ibv_reg_dmabuf_mr", [&] {
               return ibv_reg_dmabuf_mr(domain_, memory.offset, memory.length, memory.address,
                                        memory.fd, access_flags(access));
             });
}

// Tries an invalid file descriptor: a driver that supports dma-bufs refuses that descriptor.
bool takes_dmabuf(ibv_pd* domain) {
  constexpr int kNoFile = -1;
  errno = 0;
  const MemoryHandle never(ibv_reg_dmabuf_mr(domain, 0, 0, 0, kNoFile, 0));
  return errno != EOPNOTSUPP && errno != EPROTONOSUPPORT && errno != ENOSYS;
}

}  // namespace pacecar
