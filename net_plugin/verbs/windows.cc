#include "net_plugin/verbs/windows.h"

#include "transport/base/random_word.h"

namespace pacecar::ibverbs {

// Its key is ibv_mw::rkey.
struct Window : ibv_mw {
  Region* region = nullptr;          // null: not bound
  const QueuePair* owner = nullptr;  // of type 2, while it is bound
};

namespace {

constexpr uint32_t kChosenBits = 0xFF;  // of a key, which the program chooses
constexpr unsigned kRemote =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kKnownAccess = kRemote | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED;

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
  if ((info.mw_access_flags & ~kKnownAccess) != 0 || (region.access & IBV_ACCESS_MW_BIND) == 0 ||
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
  auto& windows = qp.nic().windows();
  for (auto next = windows.begin(); next != windows.end();) {
    Window& window = *(next++)->second;
    if (window.owner == &qp) unbind(qp.nic(), window);
  }
}

void set_window_calls(verbs_context& verbs) {
  verbs.context.ops.alloc_mw = Checked<allocate>::run;
  verbs.context.ops.dealloc_mw = Checked<release>::run;
  verbs.context.ops.bind_mw = bind_type_1;
}

}  // namespace pacecar::ibverbs
