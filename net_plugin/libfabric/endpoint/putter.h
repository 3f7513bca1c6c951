// Puts of an endpoint into the memory of its peers: the bytes of messages and writes after a
// clear-to-send, and those that a peer's large read asks for. A peer's queued_puts are the
// operations that wait.
// Thread rule: with the domain's lock held.
#pragma once

#include "net_plugin/libfabric/endpoint/endpoint_state.h"

namespace pacecar::fabric {

class Putter {
 public:
  explicit Putter(EndpointState& state) : state_(state) {}

  // Ends operations whose puts are done. Errors: kPeer.
  Result<void> finish_puts(Peer& peer);
  // As far as there is room. The first put opens the peer's connection for puts.
  void start_queued_puts(Peer& peer);

 private:
  void put_all(Operation& operation);

  EndpointState& state_;
};

}  // namespace pacecar::fabric
