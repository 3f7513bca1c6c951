// The queue pair of an id, its states, completion queues and shared receive queue.
#include <algorithm>
#include <tuple>
#include <utility>

#include "net_plugin/verbs/cm/ids.h"
#include "net_plugin/verbs/queue_pair.h"

namespace pacecar::ibverbs::cm {
namespace {

constexpr uint8_t kUsualAckTimeout = 18;  // 1 s
constexpr uint8_t kNotReadyDelay = 12;    // 0.64 ms
constexpr uint8_t kHopLimit = 64;
constexpr unsigned kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

void to_receive(const Id& id, ibv_qp_attr* attr, int* mask) {
  if (id.is_datagram()) return;
  attr->path_mtu = id.mtu;
  attr->dest_qp_num = id.peer_queue_pair;
  attr->rq_psn = id.peer_psn;
  attr->max_dest_rd_atomic = id.responder_resources;
  attr->min_rnr_timer = kNotReadyDelay;
  attr->ah_attr.is_global = 1;
  attr->ah_attr.port_num = 1;
  attr->ah_attr.grh.dgid = id.route.addr.addr.ibaddr.dgid;
  attr->ah_attr.grh.hop_limit = kHopLimit;
  *mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

void to_send(const Id& id, ibv_qp_attr* attr, int* mask) {
  attr->sq_psn = id.is_datagram() ? 0 : id.first_psn;
  *mask |= IBV_QP_SQ_PSN;
  if (id.is_datagram()) return;
  attr->timeout = id.ack_timeout != 0 ? id.ack_timeout : kUsualAckTimeout;
  attr->retry_cnt = id.retries;
  attr->rnr_retry = id.not_ready_retries;
  attr->max_rd_atomic = id.initiator_depth;
  *mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
}

bool move_to(Id& id, ibv_qp_state state) {
  ibv_qp_attr attr{};
  int mask = 0;
  return attributes_for(id, state, &attr, &mask) && queue_pair_of(id.qp).modify(attr, mask) == 0;
}

// A queue without a channel of the id belongs to the program.
void drop_queue(ibv_comp_channel*& channel, ibv_cq*& queue) {
  if (channel != nullptr && queue != nullptr) ibv_destroy_cq(queue);
  if (channel != nullptr) ibv_destroy_comp_channel(channel);
  channel = nullptr;
  queue = nullptr;
}
void drop_queues(Id& id) {
  drop_queue(id.recv_cq_channel, id.recv_cq);
  drop_queue(id.send_cq_channel, id.send_cq);
}

// Creates a completion queue with its channel if the program has given none.
bool make_queue(Id& id, uint32_t entries, ibv_cq*& wanted, ibv_comp_channel*& channel,
                ibv_cq*& queue) {
  if (wanted != nullptr) return true;
  channel = ibv_create_comp_channel(id.verbs);
  if (channel == nullptr) return false;
  queue = ibv_create_cq(id.verbs, static_cast<int>(std::max(1U, entries)),
                        static_cast<rdma_cm_id*>(&id), channel, 0);
  wanted = queue;
  return queue != nullptr;
}

bool make_queues(Id& id, ibv_qp_init_attr_ex& attr) {
  return make_queue(id, attr.cap.max_send_wr, attr.send_cq, id.send_cq_channel, id.send_cq) &&
         make_queue(id, attr.cap.max_recv_wr, attr.recv_cq, id.recv_cq_channel, id.recv_cq);
}

}  // namespace

bool attributes_for(Id& id, ibv_qp_state state, ibv_qp_attr* attr, int* mask) {
  *mask = IBV_QP_STATE;
  attr->qp_state = state;
  switch (state) {
    case IBV_QPS_INIT:
      attr->pkey_index = 0;
      attr->port_num = 1;
      attr->qp_access_flags = kRights;
      attr->qkey = RDMA_UDP_QKEY;
      *mask |=
          IBV_QP_PKEY_INDEX | IBV_QP_PORT | (id.is_datagram() ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
      return true;
    case IBV_QPS_RTR: to_receive(id, attr, mask); return true;
    case IBV_QPS_RTS: to_send(id, attr, mask); return true;
    default: return false;
  }
}

bool bring_up(Id& id) {
  if (id.qp->state == IBV_QPS_RESET && !move_to(id, IBV_QPS_INIT)) return false;
  return move_to(id, IBV_QPS_RTR) && move_to(id, IBV_QPS_RTS);
}

void fail_queue_pair(Id& id) {
  if (id.qp == nullptr || id.is_datagram()) return;
  (void)queue_pair_of(id.qp).modify({.qp_state = IBV_QPS_ERR}, IBV_QP_STATE);
}

extern "C" {

PACECAR_VERBS int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attr) {
  OWN_ID(own, id);
  if (own.qp != nullptr || own.device == nullptr) return failed(EINVAL);
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr->pd == nullptr) attr->pd = own.pd;
  attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
  if (attr->pd->context != own.verbs) return failed(EINVAL);
  own.pd = attr->pd;
  if (attr->srq == nullptr) attr->srq = own.srq;
  const auto given = std::pair(attr->send_cq, attr->recv_cq);
  ibv_qp* qp = nullptr;
  if (make_queues(own, *attr)) qp = ibv_create_qp_ex(own.verbs, attr);
  if (qp == nullptr) {
    const int error = errno;
    drop_queues(own);
    std::tie(attr->send_cq, attr->recv_cq) = given;
    return failed(error);
  }
  const Call call(own.device->nic());
  own.qp = qp;
  own.send_cq = attr->send_cq;
  own.recv_cq = attr->recv_cq;
  const bool up = own.is_datagram() ? bring_up(own) : move_to(own, IBV_QPS_INIT);
  return up ? 0 : failed(EINVAL);
}

PACECAR_VERBS int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) {
  ibv_qp_init_attr_ex extended = extended_of(*attr, pd);
  if (rdma_create_qp_ex(id, &extended) != 0) return -1;
  attr->cap = extended.cap;
  attr->send_cq = extended.send_cq;
  attr->recv_cq = extended.recv_cq;
  return 0;
}

PACECAR_VERBS void rdma_destroy_qp(rdma_cm_id* id) {
  Id& own = id_of(id);
  if (own.qp == nullptr || own.maker.forked()) return;
  ibv_qp* const qp = own.qp;
  {
    const Call call(own.device->nic());
    own.qp = nullptr;  // from here on no message changes the queue pair
  }
  ibv_destroy_qp(qp);
  drop_queues(own);
}

PACECAR_VERBS int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attr) {
  OWN_ID(own, id);
  if (own.srq != nullptr || own.device == nullptr) return failed(EINVAL);
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attr->pd == nullptr) attr->pd = own.pd;
  attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
  own.srq = ibv_create_srq_ex(own.verbs, attr);
  return own.srq == nullptr ? -1 : 0;
}

PACECAR_VERBS int rdma_create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attr) {
  ibv_srq_init_attr_ex extended{.srq_context = attr->srq_context,
                                .attr = attr->attr,
                                .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
                                .srq_type = IBV_SRQT_BASIC,
                                .pd = pd};
  const int result = rdma_create_srq_ex(id, &extended);
  if (result == 0) attr->attr = extended.attr;
  return result;
}

PACECAR_VERBS void rdma_destroy_srq(rdma_cm_id* id) {
  if (id->srq == nullptr) return;
  ibv_destroy_srq(id->srq);
  id->srq = nullptr;
}

PACECAR_VERBS int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attr, int* mask) {
  OWN_ID(own, id);
  if (own.device == nullptr) return failed(EINVAL);
  const Call call(own.device->nic());
  return attributes_for(own, attr->qp_state, attr, mask) ? 0 : failed(EINVAL);
}

// For a queue pair that the program has created without rdma_create_qp: its event does nothing.
PACECAR_VERBS int rdma_notify(rdma_cm_id* id, ibv_event_type /*event*/) {
  return id_of(id).end == nullptr ? failed(EINVAL) : 0;
}

}  // extern "C"
}  // namespace pacecar::ibverbs::cm
