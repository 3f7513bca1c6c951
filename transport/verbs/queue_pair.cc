#include "transport/verbs/queue_pair.h"

#include <arpa/inet.h>

#include <algorithm>

#include "transport/verbs/work_id.h"

namespace pacecar {
namespace {

ibv_wr_opcode opcode_of(Opcode opcode) {
  switch (opcode) {
    case Opcode::kWrite:
      return IBV_WR_RDMA_WRITE;
    case Opcode::kWriteWithImm:
      return IBV_WR_RDMA_WRITE_WITH_IMM;
    case Opcode::kSend:
      return IBV_WR_SEND;
    case Opcode::kRead:
      break;
  }
  return IBV_WR_RDMA_READ;
}

}  // namespace

bool VerbsQueuePair::any_lane_up() const {
  return std::any_of(lanes.begin(), lanes.begin() + static_cast<ptrdiff_t>(lanes_used),
                     [](const Lane& lane) { return lane.recovery.up(); });
}

bool VerbsQueuePair::all_lanes_up() const {
  return std::ranges::all_of(lanes, [](const Lane& lane) { return lane.recovery.up(); });
}

size_t VerbsQueuePair::next_lane() {
  constexpr Bytes kNever = ~Bytes{0};
  std::array<Bytes, RcEndpoint::kMaxLanes> in_flight;
  for (size_t i = 0; i < lanes_used; ++i) {
    in_flight[i] = lanes[i].recovery.up() ? lanes[i].ledger.in_flight() : kNever;
  }
  const size_t lane = choose_lane(std::span(in_flight).first(lanes_used), turn);
  turn = lane + 1;
  return lane;
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
  // What the peer is told of wakes it.
  const bool told = request.opcode == Opcode::kWriteWithImm || request.opcode == Opcode::kSend;
  if (told) out.send_flags |= IBV_SEND_SOLICITED;
  out.imm_data = htonl(request.immediate);
  out.wr.rdma = {.remote_addr = request.remote, .rkey = request.remote_key};
  lane.ledger.add({.number = number,
                   .bytes = request.length,
                   .departure = departure,
                   .opcode = request.opcode,
                   .signaled = signaled});
  Chain& chain = chains_[index];
  if (chain.first == kNone) {
    chain.first = count_;
  } else {
    requests_[chain.last].next = &out;
  }
  chain.last = count_++;
}

int PostBatch::post() {
  for (size_t i = 0; i < queue_pair_.lanes_used; ++i) {
    const Chain& chain = chains_[i];
    if (chain.first == kNone) continue;
    Lane& lane = queue_pair_.lanes[i];
    requests_[chain.last].send_flags |= IBV_SEND_SIGNALED;
    lane.ledger.signal_last();
    ibv_send_wr* refused = nullptr;
    const int error = ibv_post_send(lane.queue_pair.get(), &requests_[chain.first], &refused);
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace pacecar
