// Work requests of verbs as the NIC's; receive requests, shared receive queues, address handles.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>

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

// The memory of a piece; null if it is in no region of the domain, or `write` is not allowed.
uint8_t* locate(ProcessNic& nic, const ibv_pd* pd, const ibv_sge& piece, bool write) {
  const auto found = nic.regions().find(piece.lkey);
  if (found == nic.regions().end()) return nullptr;
  const Region& region = *found->second;
  if (region.pd != pd || (write && (region.access & IBV_ACCESS_LOCAL_WRITE) == 0)) return nullptr;
  const uint64_t offset = piece.addr - region.iova;
  if (piece.length > region.length || offset > region.length - piece.length) return nullptr;
  return static_cast<uint8_t*>(region.addr) + offset;
}

struct Kind {
  ibv_wr_opcode posted;
  Opcode opcode;
  ibv_wc_opcode completion;
};
constexpr std::array kKinds = {
    Kind{IBV_WR_RDMA_WRITE, Opcode::kWrite, IBV_WC_RDMA_WRITE},
    Kind{IBV_WR_RDMA_WRITE_WITH_IMM, Opcode::kWriteWithImm, IBV_WC_RDMA_WRITE},
    Kind{IBV_WR_SEND, Opcode::kSend, IBV_WC_SEND},
    Kind{IBV_WR_SEND_WITH_IMM, Opcode::kSendWithImm, IBV_WC_SEND},
    Kind{IBV_WR_SEND_WITH_INV, Opcode::kSendInvalidate, IBV_WC_SEND},
    Kind{IBV_WR_RDMA_READ, Opcode::kRead, IBV_WC_RDMA_READ},
    Kind{IBV_WR_ATOMIC_CMP_AND_SWP, Opcode::kCompareSwap, IBV_WC_COMP_SWAP},
    Kind{IBV_WR_ATOMIC_FETCH_AND_ADD, Opcode::kFetchAdd, IBV_WC_FETCH_ADD},
};

bool is_atomic(Opcode opcode) {
  return opcode == Opcode::kCompareSwap || opcode == Opcode::kFetchAdd;
}

// Data of the peer comes into our memory.
bool comes_back(Opcode opcode) { return opcode == Opcode::kRead || is_atomic(opcode); }

}  // namespace

Bytes total_of(const ibv_sge* pieces, int count) {
  Bytes total = 0;
  for (int i = 0; i < count; ++i) total += pieces[i].length;
  return total;
}

template <typename Request>
int ScatterList::gather(ProcessNic& nic, const ibv_pd* pd, std::span<const ibv_sge> list,
                        bool filled, bool in_line, Request* request) {
  const auto place_of = [&](const ibv_sge& piece) {
    return in_line ? reinterpret_cast<uint8_t*>(piece.addr) : locate(nic, pd, piece, filled);
  };
  int count = 0;
  for (const ibv_sge& piece : list) {
    if (piece.length == 0) continue;
    ++count;
    request->local = place_of(piece);
    request->local_key = piece.lkey;
    if (request->local == nullptr) return EINVAL;
  }
  if (count == 0 || (count == 1 && !in_line)) return 0;
  staging = nic.staging().take(request->length);
  if (staging.data == nullptr) return ENOMEM;
  request->local = staging.data;
  request->local_key = staging.key;
  uint8_t* to = staging.data;
  for (const ibv_sge& piece : list) {
    if (piece.length == 0) continue;
    if (filled) {
      pieces.emplace_back(place_of(piece), piece.length);
    } else {
      to = std::copy_n(place_of(piece), piece.length, to);
    }
  }
  return 0;
}
void ScatterList::scatter(Bytes bytes) const {
  const uint8_t* from = staging.data;
  for (const auto& [place, length] : pieces) {
    const size_t size = std::min<Bytes>(length, bytes);
    std::memcpy(place, from, size);
    from += size;
    bytes -= size;
  }
}

void ScatterList::give_back(ProcessNic& nic) {
  nic.staging().give_back(staging);
  staging = {};
  pieces.clear();
}

int Receives::prepare(ProcessNic& nic, const ibv_pd* pd, const ibv_recv_wr& wr,
                      ReceiveRequest* request) {
  if (wr.num_sge < 0 || wr.num_sge > kMaxSge) return EINVAL;
  if (free_.empty()) return ENOMEM;
  const uint32_t number = free_.back();
  Slot& slot = slots_[number];
  *request = ReceiveRequest{.id = number, .length = total_of(wr.sg_list, wr.num_sge)};
  const std::span list(wr.sg_list, static_cast<size_t>(wr.num_sge));
  if (const int failed = slot.memory.gather(nic, pd, list, true, false, request); failed != 0) {
    return failed;
  }
  free_.pop_back();
  slot.wr_id = wr.wr_id;
  slot.order = order_++;
  slot.posted = true;
  return 0;
}

uint64_t Receives::finish(ProcessNic& nic, uint64_t slot, Bytes bytes) {
  slots_[slot].memory.scatter(bytes);
  release(nic, static_cast<uint32_t>(slot));
  return slots_[slot].wr_id;
}

void Receives::release(ProcessNic& nic, uint32_t slot) {
  slots_[slot].memory.give_back(nic);
  slots_[slot].posted = false;
  free_.push_back(slot);
}

std::vector<uint64_t> Receives::drop_all(ProcessNic& nic) {
  std::vector<uint32_t> left;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].posted) left.push_back(i);
  }
  std::ranges::sort(left, {}, [this](uint32_t slot) { return slots_[slot].order; });
  std::vector<uint64_t> ids;
  for (const uint32_t slot : left) {
    ids.push_back(slots_[slot].wr_id);
    release(nic, slot);
  }
  return ids;
}

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
void set_receive_calls(verbs_context& verbs) { verbs.context.ops.post_srq_recv = post_shared; }

int QueuePair::fill(const ibv_send_wr& wr, WorkRequest* work_request, Sent* sent) {
  const auto* const found = std::ranges::find(kKinds, wr.opcode, &Kind::posted);
  if (found == kKinds.end()) return EINVAL;
  const Kind& kind = *found;
  if (wr.num_sge < 0 || wr.num_sge > static_cast<int>(init.cap.max_send_sge)) return EINVAL;
  const Bytes length = total_of(wr.sg_list, wr.num_sge);
  if (length > kMaxMessage || (is_atomic(kind.opcode) && length != sizeof(uint64_t))) return EINVAL;
  const bool plain_send = kind.opcode == Opcode::kSend || kind.opcode == Opcode::kSendWithImm;
  const bool invalidates = kind.opcode == Opcode::kSendInvalidate;
  if (is_datagram() && !plain_send) return EINVAL;
  if (qp_base.qp_type == IBV_QPT_UC && (invalidates || comes_back(kind.opcode))) return EINVAL;
  sent->wr_id = wr.wr_id;
  sent->bytes = static_cast<uint32_t>(length);
  sent->opcode = kind.completion;
  sent->signaled = init.sq_sig_all != 0 || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  work_request->length = length;
  work_request->opcode = kind.opcode;
  work_request->immediate = invalidates ? wr.invalidate_rkey : be32toh(wr.imm_data);
  work_request->signaled = sent->signaled;
  work_request->awaited = true;
  work_request->solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0;
  work_request->fenced = (wr.send_flags & IBV_SEND_FENCE) != 0;
  if (is_atomic(kind.opcode)) {
    const bool swap = kind.opcode == Opcode::kCompareSwap;
    work_request->remote = wr.wr.atomic.remote_addr;
    work_request->remote_key = wr.wr.atomic.rkey;
    work_request->operand = swap ? wr.wr.atomic.swap : wr.wr.atomic.compare_add;
    work_request->compare = swap ? wr.wr.atomic.compare_add : 0;
  } else if (!plain_send && !invalidates) {
    work_request->remote = wr.wr.rdma.remote_addr;
    work_request->remote_key = wr.wr.rdma.rkey;
  }
  const bool in_line = (wr.send_flags & IBV_SEND_INLINE) != 0;
  const bool reads = comes_back(kind.opcode);
  if (in_line && (reads || length > init.cap.max_inline_data)) return EINVAL;
  const std::span list(wr.sg_list, static_cast<size_t>(wr.num_sge));
  const int failed = sent->memory.gather(nic(), qp_base.pd, list, reads, in_line, work_request);
  // Only a completion releases the staging, and copies data that was read to the pieces.
  if (sent->memory.staging.data != nullptr) work_request->signaled = true;
  return failed;
}

// The NIC has room. If it does not take the work request, it has just broken the queue pair; the
// completion that reports this follows, and flushes this work request as well.
bool QueuePair::post(const WorkRequest& work_request) {
  return nic().nic().post(id, {&work_request, 1}) == 1;
}

// Binding and invalidation: take effect at once, and complete after the earlier work requests.
int QueuePair::post_local(const ibv_send_wr& wr) {
  const bool binds = wr.opcode == IBV_WR_BIND_MW;
  Sent sent{.wr_id = wr.wr_id,
            .opcode = binds ? IBV_WC_BIND_MW : IBV_WC_LOCAL_INV,
            .signaled = init.sq_sig_all != 0 || (wr.send_flags & IBV_SEND_SIGNALED) != 0};
  if (qp_base.state == IBV_QPS_ERR) {
    complete(sent, IBV_WC_WR_FLUSH_ERR);
    return 0;
  }
  const int failed = binds ? bind_window(*this, wr) : invalidate(*this, wr.invalidate_rkey);
  if (failed != 0) return failed;
  const WorkRequest nothing{
      .id = first_sent_ + sent_.size(), .opcode = Opcode::kNothing, .signaled = sent.signaled};
  (void)post(nothing);
  sent_.push(std::move(sent));
  return 0;
}

int QueuePair::post_datagram(const ibv_send_wr& wr, const WorkRequest& work_request) {
  const auto* const handle = static_cast<const AddressHandle*>(wr.wr.ud.ah);
  Datagram datagram{.send = work_request,
                    .gid = handle->gid,
                    .queue_pair = wr.wr.ud.remote_qpn,
                    .queue_key = wr.wr.ud.remote_qkey};
  // The upper bit means the queue pair's own key (10.2.5).
  if ((datagram.queue_key >> 31) != 0) datagram.queue_key = attr.qkey;
  return nic().nic().post_datagrams(id, {&datagram, 1}) == 1 ? 0 : ENOMEM;
}

int QueuePair::post_send(const ibv_send_wr& wr) {
  if (qp_base.state != IBV_QPS_RTS && qp_base.state != IBV_QPS_ERR) return EINVAL;
  if (sent_.full()) return ENOMEM;
  if (wr.opcode == IBV_WR_BIND_MW || wr.opcode == IBV_WR_LOCAL_INV) {
    return is_datagram() ? EINVAL : post_local(wr);
  }
  if (is_datagram() &&
      (wr.wr.ud.ah == nullptr || total_of(wr.sg_list, wr.num_sge) > nic().caps().mtu)) {
    return EINVAL;
  }
  Sent sent;
  WorkRequest work_request{.id = first_sent_ + sent_.size()};
  if (const int failed = fill(wr, &work_request, &sent); failed != 0) return failed;
  if (qp_base.state == IBV_QPS_ERR) {
    sent.memory.give_back(nic());
    complete(sent, IBV_WC_WR_FLUSH_ERR);
    return 0;
  }
  int failed = 0;
  if (is_datagram()) {
    failed = post_datagram(wr, work_request);
  } else if (post(work_request) && !comes_back(work_request.opcode)) {
    nic().flows().on_posted(*flow_, work_request.length);
  }
  if (failed != 0) {
    sent.memory.give_back(nic());
    return failed;
  }
  sent_.push(std::move(sent));
  return 0;
}

int QueuePair::post_receive(const ibv_recv_wr& wr) {
  if (qp_base.state == IBV_QPS_RESET) return EINVAL;
  if (shared != nullptr || wr.num_sge > static_cast<int>(init.cap.max_recv_sge)) return EINVAL;
  ReceiveRequest request;
  const int failed = own_receives_.prepare(nic(), qp_base.pd, wr, &request);
  if (failed != 0) return failed;
  if (qp_base.state == IBV_QPS_ERR) {
    flush_receives();
    return 0;
  }
  PACECAR_CHECK(nic().nic().post_receives(id, {&request, 1}) == 1);
  return 0;
}

}  // namespace pacecar::ibverbs

using namespace pacecar;  // NOLINT: the C interface lies in no namespace
using namespace pacecar::ibverbs;

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
    if (attr->is_global == 0 || attr->port_num != 1 || attr->grh.sgid_index != 0) {
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
