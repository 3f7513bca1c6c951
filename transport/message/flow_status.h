// Status of a flow, and stall of a connection, for metrics, state pages and reports. Pure values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "cc/controller.h"
#include "transport/base/units.h"
#include "transport/message/handshake.h"
#include "transport/message/limit_meter.h"

namespace pacecar {

// A connection without progress for this time has stalled, and the library reports it: long before
// the application gives up (NCCL's watchdog waits for minutes).
inline constexpr Duration kStallLimit = Duration::from_s(3);
// A stalled connection's peer is silent after this time, which no link takes that comes back.
inline constexpr Duration kNoticedSilence = Duration::from_s(1);

enum class FlowState : uint8_t {
  kJoining,  // we have offered it; the peer has not answered
  kOpen,
  kBroken,   // the peer is dead or has broken the protocol
  kLeaving,  // no connection is left; acknowledges the peer's retransmissions for a while
};

// What a flow and its status have in common.
struct FlowFacts {
  bool sending = false;
  FlowState state = FlowState::kJoining;
  NicIdentity peer{};
  std::string peer_address;  // empty: unknown
  uint64_t number = 0;       // assigned by the sender; with both NICs' identities it names the flow
  uint32_t connections = 0;  // also those whose number has been reused
  uint32_t weight = 1;       // the largest of its connections'
  FlowStats stats;           // sending
  Duration rtt;              // sending; smoothed
  uint32_t path_mtu = 0;     // sending; FlowSignal::path_mtu
  std::string fault;         // what broke the flow, as text
};

struct FlowStatus : FlowFacts {
  Explanation explanation;  // receiving: only `grant`, what we grant the sender
  LimitCounts limits{};     // sending: how often each limit was found since the flow began
  uint32_t requests = 0;    // pending, of all its connections
  Duration still;       // How long the connection with the longest standstill has made no progress.
  uint32_t writes = 0;  // sending: at the NIC, not acknowledged
  bool awaits_peer = false;  // sending: no buffer is posted; receiving: nothing was sent
};

// Why connections of a flow with pending requests make no progress.
struct Stall {
  Duration lasted;
  uint32_t connections = 0;
  uint32_t requests = 0;
  uint32_t writes = 0;       // sending: at the NIC, not acknowledged
  bool awaits_peer = false;  // sending: no buffer is posted; receiving: nothing was sent
  Explanation explanation;   // sending
  Duration rtt;
  Duration silence;          // of the peer's NIC, although it was asked
  std::string peer_address;  // of that NIC; empty: unknown

  bool silent() const { return silence >= kNoticedSilence; }
  bool expected() const { return awaits_peer && !silent(); }  // the peer may only be computing
  void add(Stall other) {
    other.lasted = std::max(lasted, other.lasted);
    other.requests += requests;
    other.writes += writes;
    other.awaits_peer &= connections == 0 || awaits_peer;
    other.connections += connections;
    *this = std::move(other);
  }
};

// For the log: a flow's stall has begun, has become worse, or is over.
struct StallReport {
  bool sending = false;
  bool over = false;
  Stall stall;
};

}  // namespace pacecar
