#include "transport/nic/lanes/lane_recovery.h"

#include <utility>

#include "transport/base/check.h"
#include "transport/base/seq.h"
#include "transport/wire/big_endian.h"

namespace pacecar {
namespace {

// Layout, big endian: kind, lane, two zeros, generation, queue pair, first PSN, received.
constexpr size_t kGenerationAt = 4;
constexpr size_t kQueuePairAt = 8;
constexpr size_t kPsnAt = 12;
constexpr size_t kReceivedAt = 16;

constexpr uint32_t kStandbyMagic = 0x50435331;  // "PCS1"

// Queue pairs 0 and 1 are for management.
bool possible(const RcLane& end) {
  return end.queue_pair > 1 && end.queue_pair <= kPsnMask && end.first_psn <= kPsnMask;
}

}  // namespace

void LaneRecovery::on_failed(Instant deadline) {
  PACECAR_CHECK(up());
  go_to(State::kFailed);
  deadline_ = deadline;
}

bool LaneRecovery::on_message(const RecoveryMessage& message) {
  // The lane was ready at both ends, and has failed at the peer before we used it.
  if (message.generation != generation_ && next(true) == Step::kUse) on_used();
  if (message.generation != generation_) return false;
  if (message.kind == RecoveryMessage::Kind::kOffer) {
    if (offer_.has_value()) return false;
    offer_ = message;
    return true;
  }
  // The peer has joined our connection, so it has our offer, and we have its.
  const bool expected = state_ == State::kReplaced ? sent_ : state_ == State::kJoined;
  if (!expected || !offer_.has_value() || ready_) return false;
  ready_ = true;
  return true;
}

LaneRecovery::Step LaneRecovery::next(bool path_ready) const {
  switch (state_) {
    case State::kUp: return Step::kWait;
    case State::kFailed: return path_ready || offered() ? Step::kReplace : Step::kWait;
    case State::kReplaced:
      if (!sent_) return Step::kSendOffer;
      return offered() ? Step::kJoin : Step::kWait;
    case State::kJoined: break;
  }
  if (!sent_) return Step::kSendReady;
  return ready_ ? Step::kUse : Step::kWait;
}

bool LaneRecovery::on_used() {
  go_to(State::kUp);
  ready_ = false;
  offer_.reset();
  deadline_ = Instant::never();
  ++generation_;
  return std::exchange(failed_again_, false);
}

std::array<uint8_t, RecoveryMessage::kBytes> encode(const RecoveryMessage& message) {
  std::array<uint8_t, RecoveryMessage::kBytes> out{};
  out[0] = static_cast<uint8_t>(message.kind);
  out[1] = message.lane;
  wire::store_be32(message.generation, &out[kGenerationAt]);
  wire::store_be32(message.end.queue_pair, &out[kQueuePairAt]);
  wire::store_be32(message.end.first_psn, &out[kPsnAt]);
  wire::store_be64(message.received, &out[kReceivedAt]);
  return out;
}

std::optional<RecoveryMessage> decode_recovery_message(std::span<const uint8_t> bytes) {
  if (bytes.size() != RecoveryMessage::kBytes || bytes[2] != 0 || bytes[3] != 0) return {};
  const RecoveryMessage message{.kind = static_cast<RecoveryMessage::Kind>(bytes[0]),
                                .lane = bytes[1],
                                .generation = wire::load_be32(&bytes[kGenerationAt]),
                                .end = {.queue_pair = wire::load_be32(&bytes[kQueuePairAt]),
                                        .first_psn = wire::load_be32(&bytes[kPsnAt])},
                                .received = wire::load_be64(&bytes[kReceivedAt])};
  const bool ready = message.kind == RecoveryMessage::Kind::kReady;
  if (!ready && message.kind != RecoveryMessage::Kind::kOffer) return {};
  const bool empty = message.end == RcLane{} && message.received == 0;
  return (ready ? empty : possible(message.end)) ? std::optional(message) : std::nullopt;
}

void announce_standby(const RcLane& end, RcEndpoint& endpoint) {
  uint8_t* to = &endpoint.extension[endpoint.extension_bytes];
  endpoint.extension_bytes += kStandbyBytes;
  PACECAR_CHECK(endpoint.extension_bytes <= RcEndpoint::kMaxExtension);
  wire::store_be32(kStandbyMagic, to);
  wire::store_be32(end.queue_pair, to + 4);
  wire::store_be32(end.first_psn, to + 8);
}

std::optional<RcLane> announced_standby(const RcEndpoint& endpoint) {
  if (endpoint.extension_bytes < kStandbyBytes) return {};
  const auto bytes = endpoint.extension_view().last(kStandbyBytes);
  if (wire::load_be32(bytes.data()) != kStandbyMagic) return {};
  const RcLane end{.queue_pair = wire::load_be32(&bytes[4]),
                   .first_psn = wire::load_be32(&bytes[8])};
  return possible(end) ? std::optional(end) : std::nullopt;
}

}  // namespace pacecar
