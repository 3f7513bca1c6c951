// Protection domains and memory regions.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "net_plugin/verbs/objects.h"

namespace pacecar::ibverbs {
namespace {

constexpr unsigned kKnownAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;

bool allowed(unsigned flags) {
  if ((flags & ~kKnownAccess) != 0) return false;
  return (flags & kChangesMemory) == 0 || (flags & IBV_ACCESS_LOCAL_WRITE) != 0;
}

bool populate(const void* address, size_t length, int how) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(address) / page * page;
  const size_t bytes = reinterpret_cast<uintptr_t>(address) - begin + length;
  return madvise(reinterpret_cast<void*>(begin), bytes, how) == 0;
}

// Faults in all pages, as pinning does for NICs. False: some are not mapped, or their protection
// does not allow the access. Before Linux 5.14 nothing is checked: true.
bool fault_in(const void* address, size_t length, bool writable) {
  static constexpr char kOwn = 0;
  static const bool possible = populate(&kOwn, 1, MADV_POPULATE_READ);
  return !possible ||
         populate(address, length, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

ibv_mr* register_region(ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned flags) {
  return made([&]() -> ibv_mr* {
    if (!allowed(flags)) return no_object(EINVAL);
    if (!fault_in(address, length, (flags & IBV_ACCESS_LOCAL_WRITE) != 0)) return no_object(EFAULT);
    auto region = std::make_unique<Region>();
    ProcessNic& nic = nic_of(pd->context);
    const Call call(nic);
    const auto registered = nic.nic().register_memory_as(address, length, access_of(flags), iova,
                                                         static_cast<Pd*>(pd)->domain);
    if (!registered) return no_object(error_number(registered.error()));
    region->context = pd->context;
    region->pd = pd;
    region->addr = address;
    region->length = length;
    region->handle = region->lkey = region->rkey = registered->key;
    region->region = *registered;
    region->iova = iova;
    region->access = flags;
    nic.regions()[region->lkey] = region.get();
    ++static_cast<Pd*>(pd)->users;
    return region.release();
  });
}

}  // namespace

// Counts domains of this process from 1 on; a number is reused after 2^24 - 1 domains.
Pd::Pd()
    : ibv_pd{}, domain([] {
        static std::atomic<uint32_t> last = 0;
        return 1 + last++ % ((1U << 24) - 1);
      }()) {}

Access access_of(unsigned flags) {
  Access access = Access::kLocalRead;
  if ((flags & IBV_ACCESS_LOCAL_WRITE) != 0) access = access | Access::kLocalWrite;
  if ((flags & IBV_ACCESS_REMOTE_WRITE) != 0) access = access | Access::kRemoteWrite;
  if ((flags & IBV_ACCESS_REMOTE_READ) != 0) access = access | Access::kRemoteRead;
  if ((flags & IBV_ACCESS_REMOTE_ATOMIC) != 0) access = access | Access::kRemoteAtomic;
  return access;
}

// verbs.h defines these as macros.
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

extern "C" {

PACECAR_VERBS ibv_pd* ibv_alloc_pd(ibv_context* context) {
  FORWARD_UNLESS_OURS(ibv_alloc_pd, context);
  return made([&]() -> ibv_pd* {
    auto* const pd = new Pd;
    pd->context = context;
    pd->handle = 0;
    return pd;
  });
}

PACECAR_VERBS int ibv_dealloc_pd(ibv_pd* pd) {
  FORWARD_UNLESS_OURS(ibv_dealloc_pd, pd);
  if (static_cast<Pd*>(pd)->users > 0) return EBUSY;
  delete static_cast<Pd*>(pd);
  return 0;
}

PACECAR_VERBS ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t length, int access) {
  FORWARD_UNLESS_OURS(ibv_reg_mr, pd, address, length, access);
  return register_region(pd, address, length, reinterpret_cast<uint64_t>(address),
                         static_cast<unsigned>(access));
}

PACECAR_VERBS ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, size_t length, uint64_t iova,
                                      int access) {
  FORWARD_UNLESS_OURS(ibv_reg_mr_iova, pd, address, length, iova, access);
  return register_region(pd, address, length, iova, static_cast<unsigned>(access));
}

PACECAR_VERBS ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, uint64_t iova,
                                       unsigned access) {
  FORWARD_UNLESS_OURS(ibv_reg_mr_iova2, pd, address, length, iova, access);
  return register_region(pd, address, length, iova, access);
}

PACECAR_VERBS int ibv_dereg_mr(ibv_mr* mr) {
  FORWARD_UNLESS_OURS(ibv_dereg_mr, mr);
  auto* const region = static_cast<Region*>(mr);
  {
    ProcessNic& nic = nic_of(mr->context);
    const Call call(nic);
    if (region->windows > 0) return EBUSY;
    nic.regions().erase(region->lkey);
    nic.nic().deregister_memory(region->region);
    --static_cast<Pd*>(mr->pd)->users;
  }
  delete region;
  return 0;
}

}  // extern "C"
}  // namespace pacecar::ibverbs
