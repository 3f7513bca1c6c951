// The configuration of a messenger, and its counters. Pure values.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "cc/constants.h"
#include "cc/host_link.h"
#include "transport/base/units.h"
#include "transport/message/handshake.h"

namespace pacecar {

using ConnectionId = uint32_t;

// How often a quiet flow says that it lives, how long it outlives its last connection, and how long
// a lane of a bond may be silent whose peer is alive on another.
inline Duration keep_alive_of(Duration silence_limit) {
  return std::min(silence_limit / 5, Duration::from_s(2));
}

struct MessengerConfig {
  NicIdentity identity{};
  std::string congestion_control = "pace";
  std::vector<NamedValue> constants;              // of the congestion control, in place of its own
  std::string allocator;                          // empty: the one that goes with it
  Rate line_rate;                                 // never 0
  Rate rate_max;                                  // 0: none
  uint32_t weight = 1;                            // of connections that name none
  Rate first_rate;                                // FlowEnvironment::first_rate
  Duration grid_origin;                           // for FlowEnvironment: simulation only
  HostLink* outgoing = nullptr;                   // shared with other processes of the host; they
  HostLink* incoming = nullptr;                   // outlive the messenger
  Duration base_rtt;                              // expected without queues; 0: unknown
  bool trimming = false;                          // switches cut off payloads
  double oversubscription = 1;                    // FlowEnvironment::oversubscription
  uint32_t max_connections = 1024;                // each way, at most Messenger::kMaxConnections
  Duration silence_limit = Duration::from_s(10);  // a peer that is silent for longer is dead
  Duration keep_alive = Duration::from_s(2);      // as of keep_alive_of()
  uint64_t first_flow_number = 0;                 // random
  uint32_t eager = 0;  // bytes of the largest eager message; only where the processor can access
                       // all registered memory
};

struct MessengerCounters {
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t protocol_errors = 0;
};

// The use of a connection by the layer above.
enum class ConnectionRole : uint8_t {
  kWhole,
  kLane,  // of a bonded connection, with notes; no eager messages
  kPuts,  // for puts; no eager messages
};

}  // namespace pacecar
