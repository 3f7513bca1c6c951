// Translates work requests of verbs into requests to the NIC.
#include <algorithm>
#include <array>
#include <span>

#include "net_plugin/verbs/queue_pair.h"
#include "net_plugin/verbs/windows.h"

namespace pacecar::ibverbs {
namespace {

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

bool is_local(const ibv_send_wr& wr) {
  return wr.opcode == IBV_WR_BIND_MW || wr.opcode == IBV_WR_LOCAL_INV;
}

// Data of the peer comes into our memory.
bool comes_back(Opcode opcode) { return opcode == Opcode::kRead || is_atomic(opcode); }

}  // namespace

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
  nic().nic().post(id, {&nothing, 1});
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

int QueuePair::prepare(const ibv_send_wr& wr, WorkRequest* work_request, Sent* sent) {
  if (qp_base.state != IBV_QPS_RTS && qp_base.state != IBV_QPS_ERR) return EINVAL;
  if (sent_.full()) return ENOMEM;
  if (is_local(wr)) return is_datagram() ? EINVAL : 0;
  if (is_datagram() &&
      (wr.wr.ud.ah == nullptr || total_of(wr.sg_list, wr.num_sge) > nic().caps().mtu)) {
    return EINVAL;
  }
  return fill(wr, work_request, sent);
}

int QueuePair::check_send(const ibv_send_wr& wr) {
  Sent sent;
  WorkRequest work_request;
  const int failed = prepare(wr, &work_request, &sent);
  if (failed == 0) sent.memory.give_back(nic());
  return failed;
}

int QueuePair::post_send(const ibv_send_wr& wr) {
  Sent sent;
  WorkRequest work_request{.id = first_sent_ + sent_.size()};
  if (const int failed = prepare(wr, &work_request, &sent); failed != 0) return failed;
  if (is_local(wr)) return post_local(wr);
  if (qp_base.state == IBV_QPS_ERR) {
    sent.memory.give_back(nic());
    complete(sent, IBV_WC_WR_FLUSH_ERR);
    return 0;
  }
  // The NIC has room. If it does not take the work request, it has just broken the queue pair; the
  // completion that reports this follows, and flushes this work request as well.
  int failed = 0;
  if (is_datagram()) {
    failed = post_datagram(wr, work_request);
  } else if (nic().nic().post(id, {&work_request, 1}) == 1 && !comes_back(work_request.opcode)) {
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
