#include "tests/support/hostile_verbs/queue_pair.h"

#include <arpa/inet.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tests/support/hostile_verbs/device.h"

namespace pacecar::hostile {
namespace {

constexpr uint32_t kPsnMask = (1 << 24) - 1;
constexpr uint32_t kWindow = 64;  // packets on their way
constexpr int64_t kTimeoutUnitNs = 4096;
constexpr int64_t kNotReadyNs = 10'000;
constexpr uint8_t kForEver = 7;

uint32_t psn_after(uint32_t psn, uint32_t count) { return (psn + count) & kPsnMask; }
// How far `a` is ahead of `b`.
int32_t ahead(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(((a - b) & kPsnMask) << 8) >> 8;
}
uint32_t packets_of(uint64_t length) {
  return static_cast<uint32_t>(
      std::max<uint64_t>(1, (length + Wire::kSegment - 1) / Wire::kSegment));
}

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
    case IBV_QPS_ERR:
      fail();
      return 0;
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
      if (wanted.max_rd_atomic > behavior.max_reads) return EINVAL;
      attributes_.timeout = wanted.timeout;
      attributes_.retry_cnt = wanted.retry_cnt;
      attributes_.rnr_retry = wanted.rnr_retry;
      attributes_.max_rd_atomic = wanted.max_rd_atomic;
      next_psn_ = cursor_psn_ = acked_psn_ = wanted.sq_psn & kPsnMask;
      break;
    default:
      return EINVAL;
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
  landing_.advance();
  return !sends_.empty() || !landing_.idle();
}

void QueuePair::fail() {
  if (verbs.state == IBV_QPS_ERR) return;
  verbs.state = IBV_QPS_ERR;
  landing_.finish();
  flush();
  if (verbs.srq != nullptr) device_.raise(IBV_EVENT_QP_LAST_WQE_REACHED, &verbs);
}

// What is posted comes back undone; what is shared with others stays.
void QueuePair::flush() {
  while (!sends_.empty()) complete_front(IBV_WC_WR_FLUSH_ERR);
  if (into_ && verbs.srq == nullptr) receives_.push_front(*std::exchange(into_, {}));
  for (const ReceiveRequest& request : std::exchange(receives_, {})) {
    const ibv_wc completion{.wr_id = request.id,
                            .status = IBV_WC_WR_FLUSH_ERR,
                            .opcode = IBV_WC_RECV,
                            .qp_num = verbs.qp_num};
    landing_.then([this, completion] { device_.complete(verbs.recv_cq, completion, true); });
  }
}

void QueuePair::take(const Packet& packet) {
  const PacketKind kind = packet.header.kind;
  if (kind == PacketKind::kAck || kind == PacketKind::kNak || kind == PacketKind::kReadResponse) {
    if (!sends_packets()) return;
    if (kind == PacketKind::kAck) return on_ack(packet.header.psn);
    return kind == PacketKind::kNak ? on_nak(packet) : on_read_response(packet);
  }
  if (takes_packets()) respond(packet);
}

// --- the requester ---

void QueuePair::transmit() {
  if (device_.now_ns() < not_before_ns_) return;
  while (cursor_psn_ != next_psn_ && ahead(cursor_psn_, acked_psn_) < static_cast<int>(kWindow)) {
    const auto send = std::ranges::find_if(sends_, [&](const Send& each) {
      return ahead(cursor_psn_, each.first_psn) < static_cast<int>(each.packets);
    });
    if (send == sends_.end() || send->not_before > device_.ticks()) return;
    if (!transmit_packet(*send)) return;
  }
}

bool QueuePair::transmit_packet(Send& send) {
  const auto index = static_cast<uint32_t>(ahead(cursor_psn_, send.first_psn));
  const uint64_t offset = uint64_t{index} * Wire::kSegment;
  const bool read = send.opcode == IBV_WR_RDMA_READ;
  Packet packet{.header = {.queue_pair = attributes_.dest_qp_num,
                           .psn = cursor_psn_,
                           .address = send.remote + (read ? 0 : offset),
                           .total = send.length,
                           .key = send.key,
                           .immediate = send.immediate,
                           .kind = PacketKind::kWrite,
                           .first = index == 0,
                           .last = index + 1 == send.packets,
                           .solicited = send.solicited},
                .payload = {}};
  const uint64_t length = std::min<uint64_t>(Wire::kSegment, send.length - offset);
  switch (send.opcode) {
    case IBV_WR_RDMA_READ:
      if (attributes_.max_rd_atomic == 0) return fail_front(IBV_WC_LOC_QP_OP_ERR), false;
      packet.header.kind = PacketKind::kReadRequest;
      packet.header.psn = send.first_psn;
      send.read = 0;
      cursor_psn_ = psn_after(send.first_psn, send.packets);
      device_.wire().send(remote_, std::move(packet));
      return true;
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      packet.header.kind = PacketKind::kSend;
      packet.header.has_immediate = send.opcode == IBV_WR_SEND_WITH_IMM;
      break;
    default:
      packet.header.has_immediate = send.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  }
  if (!gather(send, offset, length, packet.payload)) {
    // Those before it may still succeed; it is the next that fails.
    if (send.number == sends_.front().number) fail_front(IBV_WC_LOC_PROT_ERR);
    return false;
  }
  cursor_psn_ = psn_after(cursor_psn_, 1);
  device_.wire().send(remote_, std::move(packet));
  return true;
}

bool QueuePair::gather(const Send& send, uint64_t offset, uint64_t length,
                       std::vector<uint8_t>& data) {
  if (send.copied) {
    const auto begin = send.copied->begin() + static_cast<ptrdiff_t>(offset);
    data.assign(begin, begin + static_cast<ptrdiff_t>(length));
    return true;
  }
  for (const ibv_sge& piece : send.pieces) {
    if (offset >= piece.length) {
      offset -= piece.length;
      continue;
    }
    if (length == 0) break;
    const Region* region = device_.regions().find(piece.lkey, verbs.pd);
    if (region == nullptr || !region->covers(piece.addr, piece.length)) return false;
    const uint64_t count = std::min(length, piece.length - offset);
    const uint8_t* bytes = region->at(piece.addr + offset);
    data.insert(data.end(), bytes, bytes + count);
    length -= count;
    offset = 0;
  }
  return true;
}

void QueuePair::on_ack(uint32_t psn) {
  complete_through(psn);
  retries_ = not_ready_ = 0;
}

void QueuePair::on_nak(const Packet& packet) {
  const uint32_t psn = packet.header.psn;
  complete_through(psn_after(psn, kPsnMask));  // all before it
  if (sends_.empty()) return;
  switch (packet.header.nak) {
    case Nak::kSequence:
      return go_back(psn);
    case Nak::kNotReady:
      if (attributes_.rnr_retry != kForEver && ++not_ready_ > attributes_.rnr_retry) {
        return fail_front(IBV_WC_RNR_RETRY_EXC_ERR);
      }
      not_before_ns_ = device_.now_ns() + kNotReadyNs;
      last_progress_ns_ = not_before_ns_;
      return go_back(psn);
    case Nak::kInvalid:
      return fail_front(IBV_WC_REM_INV_REQ_ERR);
    case Nak::kAccess:
      return fail_front(IBV_WC_REM_ACCESS_ERR);
    case Nak::kOperation:
      return fail_front(IBV_WC_REM_OP_ERR);
  }
}

void QueuePair::on_read_response(const Packet& packet) {
  complete_through(psn_after(packet.header.psn, kPsnMask));
  if (sends_.empty()) return;
  Send& send = sends_.front();
  const auto index = ahead(packet.header.psn, send.first_psn);
  const bool expected = send.opcode == IBV_WR_RDMA_READ && index >= 0 &&
                        static_cast<uint64_t>(index) * Wire::kSegment == send.read;
  if (!expected) return;
  if (!scatter(send.pieces, send.read, packet.payload)) return fail_front(IBV_WC_LOC_PROT_ERR);
  send.read += packet.payload.size();
  retries_ = 0;
  last_progress_ns_ = device_.now_ns();
  if (packet.header.last) {
    acked_psn_ = psn_after(packet.header.psn, 1);
    complete_front(IBV_WC_SUCCESS);
  }
}

bool QueuePair::scatter(const std::vector<ibv_sge>& pieces, uint64_t offset,
                        const std::vector<uint8_t>& data) {
  size_t taken = 0;
  for (const ibv_sge& piece : pieces) {
    if (offset >= piece.length) {
      offset -= piece.length;
      continue;
    }
    if (taken == data.size()) break;
    Region* region = device_.regions().find(piece.lkey, verbs.pd);
    const bool allowed = region != nullptr && region->covers(piece.addr, piece.length) &&
                         (region->access & IBV_ACCESS_LOCAL_WRITE) != 0;
    if (!allowed) return false;
    const size_t count = std::min<size_t>(data.size() - taken, piece.length - offset);
    landing_.write(*region, piece.addr + offset,
                   {data.begin() + static_cast<ptrdiff_t>(taken),
                    data.begin() + static_cast<ptrdiff_t>(taken + count)});
    taken += count;
    offset = 0;
  }
  return taken == data.size();
}

// A read is done when its last response is here.
void QueuePair::complete_through(uint32_t psn) {
  while (!sends_.empty()) {
    const Send& send = sends_.front();
    const uint32_t last = psn_after(send.first_psn, send.packets - 1);
    if (ahead(psn, last) < 0 || send.opcode == IBV_WR_RDMA_READ) break;
    acked_psn_ = psn_after(last, 1);
    complete_front(IBV_WC_SUCCESS);
  }
  if (!sends_.empty() && ahead(psn, acked_psn_) >= 0 && ahead(cursor_psn_, psn) > 0 &&
      sends_.front().opcode != IBV_WR_RDMA_READ) {
    acked_psn_ = psn_after(psn, 1);
    last_progress_ns_ = device_.now_ns();
  }
}

void QueuePair::complete_front(ibv_wc_status status) {
  const Send send = std::move(sends_.front());
  sends_.pop_front();
  last_progress_ns_ = device_.now_ns();
  if (!send.signaled && status == IBV_WC_SUCCESS) return;
  const ibv_wc completion{.wr_id = send.id,
                          .status = status,
                          .opcode = completion_opcode(send.opcode),
                          .vendor_err = status == IBV_WC_SUCCESS ? 0U : 0x68U,
                          .byte_len = static_cast<uint32_t>(send.length),
                          .qp_num = verbs.qp_num};
  const auto tell = [this, completion, number = send.number] {
    device_.complete(verbs.send_cq, completion, false, number);
  };
  // What was read is in place before its completion; no other send waits for what lands here.
  if (send.opcode == IBV_WR_RDMA_READ) return landing_.then(tell);
  tell();
}

void QueuePair::fail_front(ibv_wc_status status) {
  complete_front(status);
  fail();
}

void QueuePair::go_back(uint32_t psn) {
  if (ahead(psn, acked_psn_) < 0 || ahead(cursor_psn_, psn) < 0) return;
  const auto send = std::ranges::find_if(sends_, [&](const Send& each) {
    return ahead(psn, each.first_psn) < static_cast<int>(each.packets);
  });
  if (send == sends_.end()) return;
  cursor_psn_ = send->opcode == IBV_WR_RDMA_READ ? send->first_psn : psn;
}

void QueuePair::watch_timeout() {
  const bool waits = !sends_.empty() && cursor_psn_ != acked_psn_ && attributes_.timeout != 0;
  if (!waits) return;
  const int64_t limit = kTimeoutUnitNs << attributes_.timeout;
  if (device_.now_ns() - last_progress_ns_ <= limit) return;
  if (++retries_ > attributes_.retry_cnt) return fail_front(IBV_WC_RETRY_EXC_ERR);
  last_progress_ns_ = device_.now_ns();
  go_back(acked_psn_);
}

ibv_wc_opcode QueuePair::completion_opcode(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      return IBV_WC_SEND;
    default:
      return IBV_WC_RDMA_WRITE;
  }
}

// --- the responder ---

void QueuePair::respond(const Packet& packet) {
  const PacketHeader& header = packet.header;
  if (verbs.state == IBV_QPS_RTR) device_.raise(IBV_EVENT_COMM_EST, &verbs);
  const int32_t distance = ahead(header.psn, expected_psn_);
  if (distance > 0) {
    if (!std::exchange(sequence_refused_, true)) refuse(Nak::kSequence);
    return;
  }
  sequence_refused_ = false;
  if (distance < 0) {  // a repetition
    if (header.kind == PacketKind::kReadRequest) return on_read_request(packet);
    return acknowledge(psn_after(expected_psn_, kPsnMask));
  }
  switch (header.kind) {
    case PacketKind::kReadRequest:
      return on_read_request(packet);
    case PacketKind::kSend:
      return on_send(packet);
    default:
      return on_write(packet);
  }
}

void QueuePair::on_write(const Packet& packet) {
  const PacketHeader& header = packet.header;
  if (header.first) message_bytes_ = 0;
  if (header.total > 0) {
    Region* region = device_.regions().find(header.key, verbs.pd);
    const uint64_t checked = header.first ? header.total : packet.payload.size();
    const bool allowed = region != nullptr && region->covers(header.address, checked) &&
                         (region->access & IBV_ACCESS_REMOTE_WRITE) != 0 &&
                         (attributes_.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) != 0;
    if (!allowed) return refuse_for_ever(Nak::kAccess);
    const bool waits = header.last && header.has_immediate && !receive_waits();
    if (waits) return refuse(Nak::kNotReady);
    landing_.write(*region, header.address, packet.payload);
  } else if (header.has_immediate && !receive_waits()) {
    return refuse(Nak::kNotReady);
  }
  message_bytes_ += packet.payload.size();
  expected_psn_ = psn_after(expected_psn_, 1);
  if (!header.last) return;
  if (header.has_immediate) {
    received(packet, *take_receive(), IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SUCCESS);
  }
  acknowledge(header.psn);
}

void QueuePair::on_send(const Packet& packet) {
  const PacketHeader& header = packet.header;
  if (header.first) {
    message_bytes_ = 0;
    if (!receive_waits()) return refuse(Nak::kNotReady);
    into_ = take_receive();
  }
  if (!into_) return refuse_for_ever(Nak::kInvalid);
  uint64_t room = 0;
  for (const ibv_sge& piece : into_->pieces) room += piece.length;
  const bool fits = message_bytes_ + packet.payload.size() <= room;
  if (!fits || !scatter(into_->pieces, message_bytes_, packet.payload)) {
    received(packet, *std::exchange(into_, {}), IBV_WC_RECV,
             fits ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_LEN_ERR);
    return refuse_for_ever(fits ? Nak::kOperation : Nak::kInvalid);
  }
  message_bytes_ += packet.payload.size();
  expected_psn_ = psn_after(expected_psn_, 1);
  if (!header.last) return;
  received(packet, *std::exchange(into_, {}), IBV_WC_RECV, IBV_WC_SUCCESS);
  acknowledge(header.psn);
}

void QueuePair::on_read_request(const Packet& packet) {
  const PacketHeader& header = packet.header;
  const Region* region = device_.regions().find(header.key, verbs.pd);
  const bool allowed =
      header.total == 0 || (region != nullptr && region->covers(header.address, header.total) &&
                            (region->access & IBV_ACCESS_REMOTE_READ) != 0 &&
                            (attributes_.qp_access_flags & IBV_ACCESS_REMOTE_READ) != 0);
  if (!allowed) return refuse_for_ever(Nak::kAccess);
  device_.finish_landing();
  const uint32_t packets = packets_of(header.total);
  for (uint32_t i = 0; i < packets; ++i) {
    const uint64_t offset = uint64_t{i} * Wire::kSegment;
    Packet response{.header = {.queue_pair = attributes_.dest_qp_num,
                               .psn = psn_after(header.psn, i),
                               .kind = PacketKind::kReadResponse,
                               .first = i == 0,
                               .last = i + 1 == packets},
                    .payload = {}};
    if (header.total > 0) {
      const uint8_t* bytes = region->at(header.address + offset);
      response.payload.assign(bytes,
                              bytes + std::min<uint64_t>(Wire::kSegment, header.total - offset));
    }
    device_.wire().send(remote_, std::move(response));
  }
  if (header.psn == expected_psn_) expected_psn_ = psn_after(expected_psn_, packets);
}

bool QueuePair::receive_waits() const {
  if (verbs.srq == nullptr) return !receives_.empty();
  return !reinterpret_cast<SharedReceives*>(verbs.srq)->requests.empty();
}

std::optional<ReceiveRequest> QueuePair::take_receive() {
  auto& queue =
      verbs.srq == nullptr ? receives_ : reinterpret_cast<SharedReceives*>(verbs.srq)->requests;
  std::optional<ReceiveRequest> request(std::move(queue.front()));
  queue.pop_front();
  return request;
}

void QueuePair::received(const Packet& packet, const ReceiveRequest& request, ibv_wc_opcode opcode,
                         ibv_wc_status status) {
  const PacketHeader& header = packet.header;
  const ibv_wc completion{.wr_id = request.id,
                          .status = status,
                          .opcode = opcode,
                          .byte_len = static_cast<uint32_t>(message_bytes_),
                          .imm_data = header.immediate,
                          .qp_num = verbs.qp_num,
                          .wc_flags = header.has_immediate ? unsigned{IBV_WC_WITH_IMM} : 0U};
  landing_.then([this, completion, solicited = header.solicited] {
    device_.complete(verbs.recv_cq, completion, solicited);
  });
}

void QueuePair::acknowledge(uint32_t psn) {
  device_.wire().send(
      remote_,
      {.header = {.queue_pair = attributes_.dest_qp_num, .psn = psn, .kind = PacketKind::kAck},
       .payload = {}});
}

void QueuePair::refuse(Nak nak) {
  device_.wire().send(remote_, {.header = {.queue_pair = attributes_.dest_qp_num,
                                           .psn = expected_psn_,
                                           .kind = PacketKind::kNak,
                                           .nak = nak},
                                .payload = {}});
}

void QueuePair::refuse_for_ever(Nak nak) {
  refuse(nak);
  fail();
  device_.raise(nak == Nak::kAccess ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR, &verbs);
}

}  // namespace pacecar::hostile
