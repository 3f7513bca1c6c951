// RecoveryMessage: a message between the two ends of a queue pair to recover a lane. It travels
// over the standby lane, which keeps order.
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
    kOffer = 1,  // the sender has a new RC connection for its end of the lane: `end`
    kReady = 2,  // the sender has joined it to the receiver's: packets to it arrive
  };
  static constexpr size_t kBytes = 24;

  Kind kind = Kind::kOffer;
  uint8_t lane = 0;
  uint32_t generation = 0;  // how many connections the lane has had before the offered one
  RcLane end;               // kOffer
  uint64_t received = 0;    // kOffer: writes with immediate received on the failed connection

  bool operator==(const RecoveryMessage&) const = default;
};

std::array<uint8_t, RecoveryMessage::kBytes> encode(const RecoveryMessage& message);
// nullopt for anything that encode() does not produce.
std::optional<RecoveryMessage> decode_recovery_message(std::span<const uint8_t> bytes);

// Appends our end of the standby lane to the extension of an RcEndpoint.
inline constexpr size_t kStandbyBytes = 12;
void announce_standby(const RcLane& end, RcEndpoint& endpoint);
// nullopt: the peer has no standby lane.
std::optional<RcLane> announced_standby(const RcEndpoint& endpoint);

}  // namespace pacecar
