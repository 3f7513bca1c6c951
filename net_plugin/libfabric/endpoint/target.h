// Serves the writes, reads and atomics of peers on registered memory. Key, bounds and access are
// checked; a refusal is replied. Thread rule: with the domain's lock held.
#pragma once

#include "net_plugin/libfabric/endpoint/bulk_transfers.h"

namespace pacecar::fabric {

class Target {
 public:
  Target(EndpointState& state, BulkTransfers& bulk) : state_(state), bulk_(bulk) {}

  // A write, an offer of a write, a read or an atomic.
  FrameResult on_request(Peer& peer, const FrameView& view);
  void forget(MemoryRegion& region);  // The region is being closed.

 private:
  // The memory that a request is about: one piece, with its region. Or the status to reply.
  tl::expected<Local, Status> resolve(const Frame& request) const;
  // Each returns the status to reply; nullopt: the reply is sent, or follows later.
  std::optional<Status> write(Peer& peer, const FrameView& view, const Local& memory);
  std::optional<Status> accept_offer(Peer& peer, const FrameView& view, const Local& memory);
  std::optional<Status> read(Peer& peer, const FrameView& view, const Local& memory);
  std::optional<Status> apply(Peer& peer, const FrameView& view, const Local& memory);
  void reply_with_segments(Peer& peer, const Frame& request, const Local& memory);

  EndpointState& state_;
  BulkTransfers& bulk_;
};

}  // namespace pacecar::fabric
