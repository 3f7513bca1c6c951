// What the bootstrap carries for a connection: which NICs a listener has, and what the messengers
// of each lane offer and answer. A connection between two single NICs has one lane.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/result.h"
#include "transport/engine/bootstrap/wire.h"
#include "transport/message/handshake.h"

namespace pacecar {

constexpr size_t kMaxLanes = 8;

// Each NIC of the device that has more of them has a lane; those of the other take turns.
constexpr size_t lanes_between(size_t here, size_t there) { return here > there ? here : there; }

// The NICs of one process have identities that differ in their last byte only.
NicIdentity random_identity();
NicIdentity identity_of_nic(NicIdentity process, uint8_t number);

// Of 1 to kMaxLanes NICs of one process.
bootstrap::Identity name_nics(std::span<const NicIdentity> nics);
// Errors: kInvalidArgument.
Result<std::vector<NicIdentity>> named_nics(const bootstrap::Identity& identity);

using Blob = std::vector<uint8_t>;
// 1 to kMaxLanes offers, or answers, which fit into the bootstrap's payload.
Blob pack_lanes(std::span<const Blob> lanes);
// Errors: kPeer.
Result<std::vector<Blob>> unpack_lanes(std::span<const uint8_t> bytes);

}  // namespace pacecar
