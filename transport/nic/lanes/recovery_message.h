// RecoveryMessage: what the two ends of a queue pair tell each other to get a lane back. It travels
// over the standby lane (standby_lane.h), which keeps order.
//
// Pure. Thread rule: any.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/nic/rc_endpoint.h"

namespace pacecar {

struct RecoveryMessage {
  enum class Kind : uint8_t {
    kOffer = 1,  // "my end of the lane is a new RC connection: this one"
    kReady = 2,  // "and it is joined to yours: what you send arrives"
  };
  static constexpr size_t kBytes = 24;

  Kind kind = Kind::kOffer;
  uint8_t lane = 0;
  uint32_t generation = 0;  // how many connections the lane has had before the offered one
  RcLane end;               // kOffer
  uint64_t received = 0;    // kOffer: writes with immediate, on the connection that was lost

  bool operator==(const RecoveryMessage&) const = default;
};

std::array<uint8_t, RecoveryMessage::kBytes> encode(const RecoveryMessage& message);
// nullopt for anything that no encode() has made.
std::optional<RecoveryMessage> decode_recovery_message(std::span<const uint8_t> bytes);

// The end of the standby lane, behind what else RcEndpoint's extension holds.
inline constexpr size_t kStandbyBytes = 12;
void announce_standby(const RcLane& end, RcEndpoint& endpoint);
// nullopt: the peer has none.
std::optional<RcLane> announced_standby(const RcEndpoint& endpoint);

}  // namespace pacecar
