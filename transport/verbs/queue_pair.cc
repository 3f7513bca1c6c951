#include "transport/verbs/queue_pair.h"

#include <arpa/inet.h>

#include "transport/base/check.h"

namespace pacecar {
namespace {

ibv_wr_opcode opcode_of(Opcode opcode) {
  switch (opcode) {
    case Opcode::kWrite: return IBV_WR_RDMA_WRITE;
    case Opcode::kWriteWithImm: return IBV_WR_RDMA_WRITE_WITH_IMM;
    case Opcode::kRead: return IBV_WR_RDMA_READ;
    default:  // of a StandardNic only
      break;
  }
  PACECAR_CHECK(!"a work request that no queue pair of this NIC takes");
}

}  // namespace

size_t VerbsQueuePair::next_lane() {
  const auto in_flight = [this](size_t index) {
    const Lane& lane = lanes[index];
    return lane.up() ? lane.ledger.in_flight() : ~Bytes{0};
  };
  size_t best = turn % lanes_used;
  for (size_t i = 1; i < lanes_used; ++i) {
    const size_t next = (turn + i) % lanes_used;
    if (in_flight(next) < in_flight(best)) best = next;
  }
  turn = best + 1;
  return best;
}

void PostBatch::add(const WorkRequest& request, uint64_t number, Instant departure) {
  const size_t index = queue_pair_.next_lane();
  Lane& lane = queue_pair_.lanes[index];
  const bool signaled = lane.ledger.wants_signal(request.length);
  const bool copied = request.host && request.length <= lane.inline_bytes;
  pieces_[count_] = {.addr = reinterpret_cast<uint64_t>(request.local),
                     .length = static_cast<uint32_t>(request.length),
                     .lkey = request.local_key};
  ibv_send_wr& out = requests_[count_];
  out.wr_id = VerbsWorkId{.queue_pair = queue_pair_.id,
                          .lane = static_cast<uint8_t>(index),
                          .sequence = lane.ledger.next_sequence()}
                  .pack();
  out.next = nullptr;
  out.sg_list = &pieces_[count_];
  out.num_sge = request.length > 0 ? 1 : 0;
  out.opcode = opcode_of(request.opcode);
  out.send_flags = 0;
  if (signaled) out.send_flags |= IBV_SEND_SIGNALED;
  if (copied) out.send_flags |= IBV_SEND_INLINE;
  // An operation that notifies the peer also wakes it.
  if (request.opcode == Opcode::kWriteWithImm) out.send_flags |= IBV_SEND_SOLICITED;
  out.imm_data = htonl(request.immediate);
  out.wr.rdma = {.remote_addr = request.remote, .rkey = request.remote_key};
  lane.ledger.add({.number = number,
                   .bytes = request.length,
                   .departure = departure,
                   .opcode = request.opcode,
                   .signaled = signaled});
  Chain& chain = chains_[index];
  (chain.first == nullptr ? chain.first : chain.last->next) = &out;
  chain.last = &out;
  ++count_;
}

int PostBatch::post() {
  for (size_t i = 0; i < queue_pair_.lanes_used; ++i) {
    const Chain& chain = chains_[i];
    if (chain.first == nullptr) continue;
    Lane& lane = queue_pair_.lanes[i];
    chain.last->send_flags |= IBV_SEND_SIGNALED;
    lane.ledger.signal_last();
    ibv_send_wr* refused = nullptr;
    const int error = ibv_post_send(lane.queue_pair.get(), chain.first, &refused);
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace pacecar
