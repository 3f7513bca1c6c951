// The requester of a queue pair.
#include <algorithm>
#include <utility>

#include "tests/support/hostile_verbs/device.h"
#include "tests/support/hostile_verbs/psn.h"
#include "tests/support/hostile_verbs/queue_pair.h"

namespace pacecar::hostile {
namespace {

constexpr uint32_t kWindow = 64;  // packets in flight
constexpr int64_t kTimeoutUnitNs = 4096;
constexpr int64_t kNotReadyNs = 10'000;
constexpr uint8_t kForEver = 7;

}  // namespace

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
      packet.header.reads = attributes_.max_rd_atomic;
      send.read = 0;
      cursor_psn_ = psn_after(send.first_psn, send.packets);
      emit(std::move(packet));
      return true;
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      packet.header.kind = PacketKind::kSend;
      packet.header.has_immediate = send.opcode == IBV_WR_SEND_WITH_IMM;
      break;
    default: packet.header.has_immediate = send.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  }
  if (!gather(send, offset, length, packet.payload)) {
    // Earlier requests may still succeed: this one fails when it is the first.
    if (send.number == sends_.front().number) fail_front(IBV_WC_LOC_PROT_ERR);
    return false;
  }
  cursor_psn_ = psn_after(cursor_psn_, 1);
  emit(std::move(packet));
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
  complete_through(psn_before(psn));  // all before it
  if (sends_.empty()) return;
  switch (packet.header.nak) {
    case Nak::kSequence: return go_back(psn);
    case Nak::kNotReady:
      if (attributes_.rnr_retry != kForEver && ++not_ready_ > attributes_.rnr_retry) {
        return fail_front(IBV_WC_RNR_RETRY_EXC_ERR);
      }
      not_before_ns_ = device_.now_ns() + kNotReadyNs;
      last_progress_ns_ = not_before_ns_;
      return go_back(psn);
    case Nak::kInvalid: return fail_front(IBV_WC_REM_INV_REQ_ERR);
    case Nak::kAccess: return fail_front(IBV_WC_REM_ACCESS_ERR);
    case Nak::kOperation: return fail_front(IBV_WC_REM_OP_ERR);
  }
}

void QueuePair::on_read_response(const Packet& packet) {
  complete_through(psn_before(packet.header.psn));
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

// Acknowledgements do not complete a read: its last response does.
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
  const bool quiet = status == IBV_WC_WR_FLUSH_ERR && device_.behavior().quiet_flushes;
  if (!send.signaled && (status == IBV_WC_SUCCESS || quiet)) return;
  const ibv_wc completion{.wr_id = send.id,
                          .status = status,
                          .opcode = completion_opcode(send.opcode),
                          .vendor_err = status == IBV_WC_SUCCESS ? 0U : 0x68U,
                          .byte_len = static_cast<uint32_t>(send.length),
                          .qp_num = verbs.qp_num};
  const auto complete_send = [this, completion, number = send.number] {
    device_.complete(verbs.send_cq, completion, false, number);
  };
  // Data that was read lands before its completion and the completions of later requests.
  if (send.opcode != IBV_WR_RDMA_READ && reads_landing_ == 0) return complete_send();
  ++reads_landing_;
  landing_.then([this, complete_send] {
    --reads_landing_;
    complete_send();
  });
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
    case IBV_WR_RDMA_READ: return IBV_WC_RDMA_READ;
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM: return IBV_WC_SEND;
    default: return IBV_WC_RDMA_WRITE;
  }
}

}  // namespace pacecar::hostile
