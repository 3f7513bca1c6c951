// Protection domains, memory regions and memory windows.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "net_plugin/verbs/queue_pair.h"
#include "transport/base/random_word.h"

namespace pacecar::ibverbs {

// Its key is ibv_mw::rkey.
struct Window : ibv_mw {
  Region* region = nullptr;          // null: not bound
  const QueuePair* owner = nullptr;  // of type 2, while it is bound
};

namespace {

constexpr unsigned kKnownAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;
constexpr unsigned kChangesMemory = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

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
// does not allow the access.
bool bring_in(const void* address, size_t length, bool written) {
  static constexpr char kOwn = 0;
  static const bool possible = populate(&kOwn, 1, MADV_POPULATE_READ);  // from Linux 5.14 on
  return !possible || populate(address, length, written ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

ibv_mr* register_region(ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned flags) {
  return made([&]() -> ibv_mr* {
    if (!allowed(flags)) return no_object(EINVAL);
    if (!bring_in(address, length, (flags & IBV_ACCESS_LOCAL_WRITE) != 0)) return no_object(EFAULT);
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

// --- memory windows ---

constexpr uint32_t kChosenBits = 0xFF;  // of a key, which the program chooses
constexpr unsigned kRemote =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kWindowAccess = kRemote | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED;

void unbind(ProcessNic& nic, Window& window) {
  if (window.region == nullptr) return;
  nic.nic().unbind_window(window.rkey);
  nic.windows().erase(window.rkey);
  --window.region->windows;
  window.region = nullptr;
  window.owner = nullptr;
}

// 0, or an errno if the window may not be bound to this part of the region.
int check(const Window& window, const Region& region, const ibv_mw_bind_info& info) {
  if (region.pd != window.pd) return EPERM;
  const bool changes = (info.mw_access_flags & kChangesMemory) != 0;
  if ((info.mw_access_flags & ~kWindowAccess) != 0 || (region.access & IBV_ACCESS_MW_BIND) == 0 ||
      (changes && (region.access & IBV_ACCESS_LOCAL_WRITE) == 0)) {
    return EINVAL;
  }
  const uint64_t offset = info.addr - region.iova;
  const bool inside = offset <= region.length && info.length <= region.length - offset;
  return inside && info.length > 0 ? 0 : EINVAL;
}

ibv_mw* allocate(ibv_pd* pd, ibv_mw_type type) {
  return made([&]() -> ibv_mw* {
    if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return no_object(EINVAL);
    auto* const window = new Window;
    window->context = pd->context;
    window->pd = pd;
    window->rkey = window->handle = random_word();
    window->type = type;
    ++static_cast<Pd*>(pd)->users;
    return window;
  });
}

int release(ibv_mw* mw) {
  auto* const window = static_cast<Window*>(mw);
  {
    ProcessNic& nic = nic_of(mw->context);
    const Call call(nic);
    unbind(nic, *window);
    --static_cast<Pd*>(mw->pd)->users;
  }
  delete window;
  return 0;
}

int bind_type_1(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  ibv_send_wr wr{};
  wr.wr_id = bind->wr_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = bind->send_flags;
  wr.bind_mw = {.mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = bind->bind_info};
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &wr, &bad);
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

int bind_window(QueuePair& by, const ibv_send_wr& wr) {
  ProcessNic& nic = by.nic();
  auto& window = *static_cast<Window*>(wr.bind_mw.mw);
  const ibv_mw_bind_info& info = wr.bind_mw.bind_info;
  const bool second = window.type == IBV_MW_TYPE_2;
  const uint32_t key = wr.bind_mw.rkey;
  if (window.pd != by.qp_base.pd) return EPERM;
  if (((key ^ window.rkey) & ~kChosenBits) != 0) return EINVAL;
  if (second && window.region != nullptr) return EINVAL;  // must be invalidated first
  if (!second && info.length == 0) {
    unbind(nic, window);
    window.rkey = key;
    return 0;
  }
  if (info.mr == nullptr) return EINVAL;
  auto& region = *static_cast<Region*>(info.mr);
  if (const int wrong = check(window, region, info); wrong != 0) return wrong;
  MemoryWindow bound{
      .address = static_cast<uint8_t*>(region.addr) + (info.addr - region.iova),
      .length = info.length,
      .remote_address = (info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : info.addr,
      .key = key,
      .access = access_of(info.mw_access_flags & kRemote),
      .domain = static_cast<Pd*>(window.pd)->domain};
  if (second) bound.queue_pair = by.id;
  if (const auto taken = nic.nic().bind_window(bound); !taken) return error_number(taken.error());
  unbind(nic, window);
  window.rkey = key;
  window.region = &region;
  window.owner = second ? &by : nullptr;
  ++region.windows;
  nic.windows()[key] = &window;
  return 0;
}

int invalidate(QueuePair& by, uint32_t key) {
  const auto found = by.nic().windows().find(key);
  if (found == by.nic().windows().end() || found->second->owner != &by) return EINVAL;
  unbind(by.nic(), *found->second);
  return 0;
}

void on_invalidated(ProcessNic& nic, uint32_t key) {
  const auto found = nic.windows().find(key);
  if (found != nic.windows().end()) unbind(nic, *found->second);
}

void unbind_windows_of(QueuePair& qp) {
  ProcessNic& nic = qp.nic();
  std::vector<Window*> of_queue_pair;
  for (const auto& [key, window] : nic.windows()) {
    if (window->owner == &qp) of_queue_pair.push_back(window);
  }
  for (Window* const window : of_queue_pair) unbind(nic, *window);
}

void set_memory_calls(verbs_context& verbs) {
  verbs.context.ops.alloc_mw = allocate;
  verbs.context.ops.dealloc_mw = release;
  verbs.context.ops.bind_mw = bind_type_1;
}

}  // namespace pacecar::ibverbs

using namespace pacecar;  // NOLINT: the C interface lies in no namespace
using namespace pacecar::ibverbs;

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

PACECAR_VERBS ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova,
                                        int fd, int access) {
  FORWARD_UNLESS_OURS(ibv_reg_dmabuf_mr, pd, offset, length, iova, fd, access);
  return no_object(EOPNOTSUPP);
}

PACECAR_VERBS int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, size_t length,
                               int access) {
  FORWARD_UNLESS_OURS(ibv_rereg_mr, mr, flags, pd, address, length, access);
  errno = EOPNOTSUPP;
  return IBV_REREG_MR_ERR_INPUT;
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
