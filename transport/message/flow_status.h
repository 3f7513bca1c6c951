// How one flow stands, for those who look from time to time. Pure values.
#pragma once

#include <cstdint>
#include <string>

#include "cc/controller.h"
#include "transport/base/units.h"
#include "transport/message/handshake.h"
#include "transport/message/limit_meter.h"

namespace pacecar {

// A connection that has not moved for so long stalls, and the library says so: long before those
// above give up (NCCL's watchdog waits for minutes).
inline constexpr Duration kStallLimit = Duration::from_s(5);

enum class FlowState : uint8_t {
  kJoining,  // we have offered it; the peer has not answered
  kOpen,
  kBroken,   // the peer is dead or talks nonsense
  kLeaving,  // no connection is left; stays a while to answer the peer's repetitions
};

struct FlowStatus {
  bool sending = false;
  FlowState state = FlowState::kJoining;
  NicIdentity peer{};
  std::string peer_address;  // empty: unknown
  uint64_t number = 0;       // the sender's; with both NICs' identities it names the flow
  uint32_t connections = 0;
  uint32_t weight = 1;
  FlowStats stats;          // sending
  Explanation explanation;  // receiving: `grant` alone, what we let the sender send
  LimitCounts limits{};     // sending: how often each was found, since the flow began
  Duration rtt;             // sending; smoothed
  uint32_t requests = 0;    // of all its connections that wait for something
  // Of the connection among them on which nothing has moved for the longest time.
  Duration still;
  uint32_t writes = 0;       // sending: given to the NIC, and not acknowledged
  bool awaits_peer = false;  // sending: it has posted no buffer; receiving: it has not sent
  std::string fault;         // what broke the flow, for people
};

}  // namespace pacecar
