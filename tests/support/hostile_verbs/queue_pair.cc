#include "tests/support/hostile_verbs/queue_pair.h"

#include <arpa/inet.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tests/support/hostile_verbs/device.h"
#include "tests/support/hostile_verbs/psn.h"

namespace pacecar::hostile {
namespace {

std::vector<ibv_sge> pieces_of(const ibv_sge* list, int count) { return {list, list + count}; }

}  // namespace

QueuePair::QueuePair(Device& device, const ibv_qp_init_attr& wanted)
    : device_(device),
      capacity_(wanted.cap),
      all_signaled_(wanted.sq_sig_all != 0),
      landing_(device.behavior(), device.prng()) {
  capacity_.max_inline_data =
      capacity_.max_inline_data == 0 ? 0 : device.behavior().max_inline;  // devices round up
  verbs.context = device.context();
  verbs.qp_context = wanted.qp_context;
  verbs.send_cq = wanted.send_cq;
  verbs.recv_cq = wanted.recv_cq;
  verbs.srq = wanted.srq;
  verbs.qp_type = wanted.qp_type;
  verbs.state = IBV_QPS_RESET;
}

int QueuePair::modify(const ibv_qp_attr& wanted, int mask) {
  if ((mask & IBV_QP_STATE) == 0) return EINVAL;
  const Behavior& behavior = device_.behavior();
  const auto has = [&](int bits) { return (mask & bits) == bits; };
  switch (wanted.qp_state) {
    case IBV_QPS_ERR: fail(); return 0;
    case IBV_QPS_INIT:
      if (verbs.state != IBV_QPS_RESET) return EINVAL;
      if (!has(IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)) return EINVAL;
      if (wanted.port_num != 1 || wanted.pkey_index >= behavior.pkey_table) return EINVAL;
      attributes_.pkey_index = wanted.pkey_index;
      attributes_.qp_access_flags = wanted.qp_access_flags;
      break;
    case IBV_QPS_RTR: {
      if (verbs.state != IBV_QPS_INIT) return EINVAL;
      if (!has(IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)) {
        return EINVAL;
      }
      const ibv_ah_attr& path = wanted.ah_attr;
      const bool needs_grh = !behavior.infiniband || behavior.grh_required;
      if (needs_grh && path.is_global == 0) return EINVAL;
      if (path.is_global != 0 && path.grh.sgid_index != 0) return EINVAL;
      if (behavior.infiniband && path.dlid == 0) return EINVAL;
      if (128U << wanted.path_mtu > behavior.mtu) return EINVAL;
      if (wanted.max_dest_rd_atomic > behavior.max_reads) return EINVAL;
      attributes_.dest_qp_num = wanted.dest_qp_num;
      attributes_.max_dest_rd_atomic = wanted.max_dest_rd_atomic;
      expected_psn_ = wanted.rq_psn & kPsnMask;
      remote_ = {.device = behavior.infiniband ? static_cast<uint16_t>(path.dlid - 1)
                                               : static_cast<uint16_t>(path.grh.dgid.raw[15] - 1),
                 .context = static_cast<uint16_t>(wanted.dest_qp_num >> 12)};
      break;
    }
    case IBV_QPS_RTS:
      if (verbs.state != IBV_QPS_RTR) return EINVAL;
      if (!has(IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
               IBV_QP_MAX_QP_RD_ATOMIC)) {
        return EINVAL;
      }
      if (wanted.max_rd_atomic > behavior.max_reads_started) return EINVAL;
      attributes_.timeout = wanted.timeout;
      attributes_.retry_cnt = wanted.retry_cnt;
      attributes_.rnr_retry = wanted.rnr_retry;
      attributes_.max_rd_atomic = wanted.max_rd_atomic;
      next_psn_ = cursor_psn_ = acked_psn_ = wanted.sq_psn & kPsnMask;
      break;
    default: return EINVAL;
  }
  verbs.state = wanted.qp_state;
  return 0;
}

// --- posting ---

int QueuePair::post_send(ibv_send_wr* request, ibv_send_wr** refused) {
  for (; request != nullptr; request = request->next) {
    *refused = request;
    if (verbs.state != IBV_QPS_RTS && verbs.state != IBV_QPS_ERR) return EINVAL;
    if (posted_ - polled_ >= capacity_.max_send_wr) return ENOMEM;
    if (request->num_sge > static_cast<int>(capacity_.max_send_sge)) return EINVAL;
    Send send{
        .id = request->wr_id,
        .number = posted_ + 1,
        .opcode = request->opcode,
        .signaled = all_signaled_ || (request->send_flags & IBV_SEND_SIGNALED) != 0,
        .solicited = (request->send_flags & IBV_SEND_SOLICITED) != 0,
        .immediate = request->imm_data,
        .remote = request->wr.rdma.remote_addr,
        .key = request->wr.rdma.rkey,
        .pieces = pieces_of(request->sg_list, request->num_sge),
        .copied = {},
        .length = 0,
        .not_before = device_.ticks() + device_.prng().below(device_.behavior().late_reading + 1),
        .first_psn = next_psn_,
        .packets = 0};
    for (const ibv_sge& piece : send.pieces) send.length += piece.length;
    if ((request->send_flags & IBV_SEND_INLINE) != 0) {
      if (send.length > capacity_.max_inline_data || send.opcode == IBV_WR_RDMA_READ) return EINVAL;
      send.copied.emplace();
      for (const ibv_sge& piece : send.pieces) {  // by the processor, now
        const auto* bytes = reinterpret_cast<const uint8_t*>(piece.addr);
        send.copied->insert(send.copied->end(), bytes, bytes + piece.length);
      }
    }
    send.packets = packets_of(send.length);
    next_psn_ = psn_after(next_psn_, send.packets);
    ++posted_;
    if (sends_.empty()) last_progress_ns_ = device_.now_ns();
    sends_.push_back(std::move(send));
    if (verbs.state == IBV_QPS_ERR) flush();
  }
  return 0;
}

int QueuePair::post_receive(ibv_recv_wr* request, ibv_recv_wr** refused) {
  for (; request != nullptr; request = request->next) {
    *refused = request;
    if (verbs.state == IBV_QPS_RESET || verbs.srq != nullptr) return EINVAL;
    if (receives_.size() >= capacity_.max_recv_wr) return ENOMEM;
    if (request->num_sge > static_cast<int>(capacity_.max_recv_sge)) return EINVAL;
    receives_.push_back({request->wr_id, pieces_of(request->sg_list, request->num_sge)});
    if (verbs.state == IBV_QPS_ERR) flush();
  }
  return 0;
}

bool QueuePair::advance() {
  if (sends_packets()) {
    watch_timeout();
    transmit();
  }
  if (last_receive_raised_) {
    landing_.advance();
  } else if (device_.now_ns() >= last_receive_ns_) {
    end_receiving();
  }
  return !sends_.empty() || !landing_.idle() || !last_receive_raised_;
}

// Posted requests are flushed at once. Receives that were taken from a shared receive queue may
// complete later; an event follows the last (InfiniBand specification, 10.2.9).
void QueuePair::fail() {
  if (verbs.state == IBV_QPS_ERR) return;
  verbs.state = IBV_QPS_ERR;
  if (verbs.srq == nullptr) {
    landing_.finish();
    return flush();
  }
  flush();
  last_receive_raised_ = false;
  last_receive_ns_ = device_.now_ns() + device_.behavior().late_last_receive.ns();
  if (device_.now_ns() >= last_receive_ns_) end_receiving();
}

void QueuePair::end_receiving() {
  landing_.finish();
  last_receive_raised_ = true;
  device_.raise(IBV_EVENT_QP_LAST_WQE_REACHED, &verbs);
}

void QueuePair::on_polled(uint64_t send) {
  polled_ = std::max(polled_, send);
  if (send != 0 || verbs.srq == nullptr || shared_taken_ == 0) return;
  --shared_taken_;
  --shared().taken;
}

void QueuePair::give_back() {
  landing_.finish();
  if (verbs.srq == nullptr) return;
  shared().taken -= shared_taken_;
  --shared().users;
}

// Posted requests complete with flush errors; shared receives stay posted.
void QueuePair::flush() {
  while (!sends_.empty()) complete_front(IBV_WC_WR_FLUSH_ERR);
  if (into_) receives_.push_front(*std::exchange(into_, {}));
  for (const ReceiveRequest& request : std::exchange(receives_, {})) {
    const ibv_wc completion{.wr_id = request.id,
                            .status = IBV_WC_WR_FLUSH_ERR,
                            .opcode = IBV_WC_RECV,
                            .qp_num = verbs.qp_num};
    landing_.then([this, completion] { device_.complete(verbs.recv_cq, completion, true); });
  }
}

bool QueuePair::full_member() const {
  return attributes_.pkey_index + 1 == device_.behavior().pkey_table;
}

void QueuePair::emit(Packet packet) {
  packet.header.full_member = full_member();
  device_.wire().send(remote_, std::move(packet));
}

void QueuePair::take(const Packet& packet) {
  if (!packet.header.full_member && !full_member())
    return;  // two limited members of a partition cannot reach each other
  const PacketKind kind = packet.header.kind;
  if (kind == PacketKind::kAck || kind == PacketKind::kNak || kind == PacketKind::kReadResponse) {
    if (!sends_packets()) return;
    if (kind == PacketKind::kAck) return on_ack(packet.header.psn);
    return kind == PacketKind::kNak ? on_nak(packet) : on_read_response(packet);
  }
  if (takes_packets()) respond(packet);
}

}  // namespace pacecar::hostile
