// What the parts of an endpoint share. Thread rule: with the domain's lock held.
#pragma once

#include "net_plugin/libfabric/endpoint/operations.h"
#include "net_plugin/libfabric/endpoint/peer_table.h"

namespace pacecar::fabric {

// kNoRoom: the frame is handled again later. kProtocolError: the peer fails.
enum class FrameResult : uint8_t { kHandled, kNoRoom, kProtocolError };

struct EndpointState {
  explicit EndpointState(Domain& its_domain) : domain(its_domain) {}

  // Whether a receive can end, or begin to wait for its bytes.
  bool can_receive() const { return !completions.receive().full() && !operations.full(); }

  Domain& domain;
  BoundCompletions completions;
  PeerTable peers{domain};
  Operations operations{domain, completions};
};

}  // namespace pacecar::fabric
