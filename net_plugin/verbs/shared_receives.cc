// Shared receive queues, and address handles.
#include <algorithm>

#include "net_plugin/verbs/queue_pair.h"
#include "transport/wire/address.h"

namespace pacecar::ibverbs {
namespace {

int post_shared(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  auto& shared = *static_cast<SharedReceives*>(srq);
  ProcessNic& nic = nic_of(srq->context);
  const std::lock_guard lock(nic.mutex());
  for (; wr != nullptr; wr = wr->next) {
    ReceiveRequest request;
    const bool fits = wr->num_sge <= static_cast<int>(shared.max_sge);
    const int failed = fits ? shared.receives.prepare(nic, srq->pd, *wr, &request) : EINVAL;
    if (failed != 0) {
      *bad = wr;
      return failed;
    }
    PACECAR_CHECK(nic.nic().post_shared_receives(shared.id, {&request, 1}) == 1);
  }
  return 0;
}

}  // namespace

std::array<uint8_t, 16> sender_of(const ibv_grh& grh) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(&grh);
  constexpr size_t kIpv4At = 20;
  std::array<uint8_t, 16> gid{};
  if (bytes[0] >> 4 == 6 || bytes[kIpv4At] >> 4 != 4) {
    std::copy_n(grh.sgid.raw, gid.size(), gid.begin());
    return gid;
  }
  std::ranges::copy(kIpv4Prefix, gid.begin());
  std::copy_n(bytes + kIpv4At + 12, 4, gid.begin() + kIpv4Prefix.size());
  return gid;
}

// ibv_create_srq_ex calls ibv_create_srq for basic queues, and fails for others (XRC, tags).
void set_receive_calls(verbs_context& verbs) {
  verbs.context.ops.post_srq_recv = Checked<post_shared>::run;
}

extern "C" {

PACECAR_VERBS ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  FORWARD_UNLESS_OURS(ibv_create_srq, pd, attr);
  return made([&]() -> ibv_srq* {
    if (attr->attr.max_wr < 1 || attr->attr.max_wr > static_cast<uint32_t>(kMaxWorkRequests) ||
        attr->attr.max_sge > static_cast<uint32_t>(kMaxSge)) {
      return no_object(EINVAL);
    }
    auto shared = std::make_unique<SharedReceives>(attr->attr.max_wr);
    ProcessNic& nic = nic_of(pd->context);
    const Call call(nic);
    const auto id = nic.nic().create_receive_queue(attr->attr.max_wr);
    if (!id) return no_object(error_number(id.error()));
    shared->context = pd->context;
    shared->srq_context = attr->srq_context;
    shared->pd = pd;
    shared->handle = shared->id = *id;
    shared->max_sge = std::max(1U, attr->attr.max_sge);
    attr->attr.max_sge = shared->max_sge;
    begin_events(*shared);
    ++static_cast<Pd*>(pd)->users;
    return shared.release();
  });
}

PACECAR_VERBS int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  FORWARD_UNLESS_OURS(ibv_modify_srq, srq, attr, mask);
  auto& shared = *static_cast<SharedReceives*>(srq);
  const Call call(nic_of(srq->context));
  if ((mask & ~IBV_SRQ_LIMIT) != 0) return EINVAL;  // the size is fixed
  if ((mask & IBV_SRQ_LIMIT) != 0) {
    if (attr->srq_limit > shared.receives.capacity()) return EINVAL;
    shared.limit = attr->srq_limit;
  }
  return 0;
}

PACECAR_VERBS int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  FORWARD_UNLESS_OURS(ibv_query_srq, srq, attr);
  auto& shared = *static_cast<SharedReceives*>(srq);
  const Call call(nic_of(srq->context));
  *attr = {.max_wr = static_cast<uint32_t>(shared.receives.capacity()),
           .max_sge = shared.max_sge,
           .srq_limit = shared.limit};
  return 0;
}

PACECAR_VERBS int ibv_destroy_srq(ibv_srq* srq) {
  FORWARD_UNLESS_OURS(ibv_destroy_srq, srq);
  auto* const shared = static_cast<SharedReceives*>(srq);
  {
    ProcessNic& nic = nic_of(srq->context);
    const Call call(nic);
    if (shared->users > 0) return EBUSY;
    shared->receives.drop_all(nic);
    nic.nic().destroy_receive_queue(shared->id);
    --static_cast<Pd*>(srq->pd)->users;
  }
  end_events(*srq, srq->events_completed, shared->async_events);
  delete shared;
  return 0;
}

PACECAR_VERBS ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  FORWARD_UNLESS_OURS(ibv_create_ah, pd, attr);
  return made([&]() -> ibv_ah* {
    if (attr->is_global == 0 || attr->port_num != 1 || attr->grh.sgid_index >= kGids) {
      return no_object(EINVAL);
    }
    auto* const handle = new AddressHandle;
    handle->context = pd->context;
    handle->pd = pd;
    std::ranges::copy(attr->grh.dgid.raw, handle->gid.begin());
    ++static_cast<Pd*>(pd)->users;
    return handle;
  });
}

PACECAR_VERBS int ibv_init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* wc, ibv_grh* grh,
                                      ibv_ah_attr* attr) {
  FORWARD_UNLESS_OURS(ibv_init_ah_from_wc, context, port, wc, grh, attr);
  if (port != 1 || (wc->wc_flags & IBV_WC_GRH) == 0) return failed(EINVAL);
  *attr = ibv_ah_attr{};
  attr->is_global = 1;
  attr->port_num = port;
  attr->grh.hop_limit = 0xFF;
  std::ranges::copy(sender_of(*grh), attr->grh.dgid.raw);
  return 0;
}

PACECAR_VERBS ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) {
  FORWARD_UNLESS_OURS(ibv_create_ah_from_wc, pd, wc, grh, port);
  ibv_ah_attr attr;
  if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) != 0) return nullptr;
  return ibv_create_ah(pd, &attr);
}

PACECAR_VERBS int ibv_destroy_ah(ibv_ah* ah) {
  FORWARD_UNLESS_OURS(ibv_destroy_ah, ah);
  --static_cast<Pd*>(ah->pd)->users;
  delete static_cast<AddressHandle*>(ah);
  return 0;
}

PACECAR_VERBS int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr,
                                              uint8_t mac[6], uint16_t* vlan) {
  FORWARD_UNLESS_OURS(ibv_resolve_eth_l2_from_gid, context, attr, mac, vlan);
  std::fill_n(mac, 6, uint8_t{0});  // the kernel resolves it
  if (vlan != nullptr) *vlan = 0xFFFF;
  return 0;
}

}  // extern "C"
}  // namespace pacecar::ibverbs
