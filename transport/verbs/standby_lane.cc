#include "transport/verbs/standby_lane.h"

#include <algorithm>
#include <cerrno>
#include <span>

#include "transport/base/return_if_error.h"
#include "transport/verbs/errors.h"

namespace pacecar {

Result<std::unique_ptr<StandbyLane>> StandbyLane::create(const VerbsDevice& device,
                                                         const LaneConfig& lanes, QueuePairId id,
                                                         uint32_t flow_label) {
  std::unique_ptr<StandbyLane> standby(new StandbyLane(lanes, id));
  standby->memory_.reset(ibv_reg_mr(standby->config_.domain, standby->buffers_.data(),
                                    standby->buffers_.bytes(), IBV_ACCESS_LOCAL_WRITE));
  if (standby->memory_ == nullptr) {
    return verbs_failed("ibv_reg_mr", errno, device.name, Call::kRegister);
  }
  ASSIGN_OR_RETURN(standby->lane_, make_lane(device, standby->config_, flow_label));
  for (uint32_t slot = 0; slot < kMessages; ++slot) {
    if (const int error = standby->receive_into(slot); error != 0) {
      return verbs_failed("ibv_post_recv", error, device.name);
    }
  }
  return standby;
}

StandbyLane::StandbyLane(const LaneConfig& lanes, QueuePairId id)
    : config_(lanes), id_(id), lane_(kMessages) {
  config_.shared_receives = nullptr;
  config_.receives = kMessages;
  config_.work_requests = kMessages;
}

Result<void> StandbyLane::connect(const VerbsDevice& device, const RcEndpoint& remote,
                                  const RcLane& end) {
  auto connected = connect_lane(device, config_, lane_, remote, end);
  connected_ = connected.has_value();
  return connected;
}

bool StandbyLane::send(const RecoveryMessage& message) {
  if (!usable() || in_flight_ == kMessages) return false;
  const uint32_t slot = sent_ % kMessages;
  buffers_->sent[slot] = encode(message);
  const ibv_send_wr request{
      .wr_id = work_id(false, slot).pack(),
      .opcode = IBV_WR_SEND,
      .send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED};  // a sleeping peer must answer
  const auto& bytes = buffers_->sent[slot];
  if (post_send(lane_, request, piece_of(bytes.data(), bytes.size(), memory_->lkey)) != 0) {
    failed_ = true;
    return false;
  }
  ++sent_;
  ++in_flight_;
  return true;
}

StandbyLane::Event StandbyLane::on_completion(const ibv_wc& completion) {
  const VerbsWorkId id = VerbsWorkId::unpack(completion.wr_id);
  if (completion.status != IBV_WC_SUCCESS) {
    failed_ = true;
    return {};
  }
  if (!id.receive) {
    --in_flight_;
    return {};
  }
  const auto& bytes = buffers_->received[id.sequence];
  const size_t length = std::min<size_t>(completion.byte_len, bytes.size());
  const Event event{true, decode_recovery_message(std::span(bytes).first(length))};
  if (receive_into(id.sequence) != 0) failed_ = true;
  return event;
}

void StandbyLane::stop() {
  failed_ = true;
  stop_lane(lane_);
}

int StandbyLane::receive_into(uint32_t slot) {
  const auto& bytes = buffers_->received[slot];
  return post_receive(lane_, work_id(true, slot).pack(),
                      piece_of(bytes.data(), bytes.size(), memory_->lkey));
}

}  // namespace pacecar
