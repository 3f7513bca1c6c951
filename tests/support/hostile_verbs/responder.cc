// The responder of a queue pair.
#include <utility>

#include "tests/support/hostile_verbs/device.h"
#include "tests/support/hostile_verbs/psn.h"
#include "tests/support/hostile_verbs/queue_pair.h"

namespace pacecar::hostile {

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
    return acknowledge(psn_before(expected_psn_));
  }
  switch (header.kind) {
    case PacketKind::kReadRequest: return on_read_request(packet);
    case PacketKind::kSend: return on_send(packet);
    default: return on_write(packet);
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
  // As if the requester used its read depth at once, which it may (specification, 9.7.4.1.2).
  if (header.reads > attributes_.max_dest_rd_atomic) return refuse_for_ever(Nak::kInvalid);
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
      response.payload.resize(std::min<uint64_t>(Wire::kSegment, header.total - offset));
      // Another device may write there at the same time.
      for (uint8_t& byte : response.payload) byte = __atomic_load_n(bytes++, __ATOMIC_RELAXED);
    }
    emit(std::move(response));
  }
  if (header.psn == expected_psn_) expected_psn_ = psn_after(expected_psn_, packets);
}

bool QueuePair::receive_waits() const {
  if (verbs.srq == nullptr) return !receives_.empty();
  return !shared().requests.empty();
}

std::optional<ReceiveRequest> QueuePair::take_receive() {
  auto& queue = verbs.srq == nullptr ? receives_ : shared().requests;
  if (verbs.srq != nullptr) {
    ++shared_taken_;
    ++shared().taken;
  }
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
  emit({.header = {.queue_pair = attributes_.dest_qp_num, .psn = psn, .kind = PacketKind::kAck},
        .payload = {}});
}

void QueuePair::refuse(Nak nak) {
  emit({.header = {.queue_pair = attributes_.dest_qp_num,
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
