#include "transport/nic/lanes/recovery_message.h"

#include "transport/base/check.h"
#include "transport/wire/big_endian.h"

namespace pacecar {
namespace {

using Kind = RecoveryMessage::Kind;

// Layout, big endian: kind, lane, two zeros, generation, queue pair, first PSN, received.
constexpr size_t kGenerationAt = 4;
constexpr size_t kQueuePairAt = 8;
constexpr size_t kPsnAt = 12;
constexpr size_t kReceivedAt = 16;

constexpr uint32_t kStandbyMagic = 0x50435331;  // "PCS1"

constexpr uint32_t kMax24 = (1U << 24) - 1;

// Queue pairs 0 and 1 are for management.
bool possible(const RcLane& end) {
  return end.queue_pair > 1 && end.queue_pair <= kMax24 && end.first_psn <= kMax24;
}

}  // namespace

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
  const RecoveryMessage message{.kind = static_cast<Kind>(bytes[0]),
                                .lane = bytes[1],
                                .generation = wire::load_be32(&bytes[kGenerationAt]),
                                .end = {.queue_pair = wire::load_be32(&bytes[kQueuePairAt]),
                                        .first_psn = wire::load_be32(&bytes[kPsnAt])},
                                .received = wire::load_be64(&bytes[kReceivedAt])};
  if (message.kind == Kind::kOffer)
    return possible(message.end) ? std::optional(message) : std::nullopt;
  const bool empty = message.end == RcLane{} && message.received == 0;
  return message.kind == Kind::kReady && empty ? std::optional(message) : std::nullopt;
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
